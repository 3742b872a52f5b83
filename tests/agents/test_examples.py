"""The pages of the two frameworks, as their users run them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.examples.test_examples import EXAMPLES, run
from tests.helpers.provider import Reply

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helpers.provider import ProviderServer, SeenRequest


def down_but_for_the_small_one(request: SeenRequest) -> Reply:
    """Fail whoever is asked first."""
    return Reply() if request.body["model"] == "gpt-5-mini" else Reply(status=503)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", ["openai-agents", "pydantic-ai"])
def test_a_page_runs_from_top_to_bottom(
    page: str, providers: ProviderServer, tmp_path: Path
) -> None:
    """Its blocks are one program; the primary is down, and sees one request for each agent."""
    primary, local = providers.new("primary"), providers.new("local")
    primary.standing = down_but_for_the_small_one
    text = (EXAMPLES.parent / f"docs/{page}.md").read_text("utf-8")
    code = "\n".join(re.findall(r"^```py\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    program = tmp_path / "program.py"
    program.write_text(code, "utf-8")
    done = run(
        program,
        OPENAI_API_KEY="none",
        OPENAI_BASE_URL=primary.url,
        LOCAL_URL=local.url.replace("127.0.0.1", "localhost"),
        OPENAI_AGENTS_DISABLE_TRACING="1",
        NO_PROXY="127.0.0.1,localhost",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"hello from {local.name}\n"
    models = [body["model"] for body in primary.bodies]
    assert models == sorted({*models}, key=models.index)  # none twice
