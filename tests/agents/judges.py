"""Run the frameworks' own tests of fallbacks and retries with our classes in place of theirs.

    python tests/agents/judges.py [theirs]

The Agents SDK's come from the source distribution of the installed release. Pydantic AI's has no
tests: PYDANTIC_AI_TESTS names the folder ``tests`` of its repository. Nothing is kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
AGENTS = ("tests/models/test_model_retry.py", "tests/models/test_openai_retry_helpers.py")
FALLBACK = "tests/models/test_fallback.py"


def source_of(package: str, folder: str) -> Path:
    """Fetch and unpack the source distribution of an installed release."""
    wanted = f"{package}=={version(package)}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, "--dest", folder, wanted], check=True)
    (archive,) = Path(folder).glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return archive.with_name(archive.name.removesuffix(".tar.gz"))


def judge(folder: Path, *files: str) -> int:
    """Run files of tests in a folder."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (HERE, ROOT)))}
    environment["BLOCKBUSTER_ENABLED"] = "false"  # it scans packages that are not here
    if "theirs" in sys.argv:
        environment["JUDGED"] = "theirs"
    pytest = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "judge_plugin"]
    # Their settings of plugins differ: Pydantic AI runs its tests on anyio alone.
    plugins = ["-p", "no:asyncio"] if FALLBACK in files else []
    command = [*pytest, *plugins, "--tb=line", *files]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def main() -> int:
    """Run both, and say which one is not here."""
    with tempfile.TemporaryDirectory() as folder:
        codes = [judge(source_of("openai-agents", folder), *AGENTS)]
    tests = os.environ.get("PYDANTIC_AI_TESTS")
    if tests:
        codes.append(judge(Path(tests).resolve().parent, FALLBACK))
    else:
        sys.stderr.write("Pydantic AI's tests are not here: set PYDANTIC_AI_TESTS\n")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
