"""What pages say stands in the code, in other files or in each other: they say the same."""

from __future__ import annotations

import re
import runpy
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import honcho_fallback_litellm
from honcho_fallback import FallbackConfig
from tests.test_house import ROOMS
from tests.unit.test_turns import cost_of_a_conversation

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEXTS = {path.name: path.read_text("utf-8") for path in DOCS.glob("*.md")}
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
# LiteLLM's own warnings, at its import.
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:pydantic"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

# Pages that are generated.

GENERATOR: dict[str, Any] = runpy.run_path(str(DOCS / "_generate.py"))
PAGES: dict[str, Callable[[], str]] = GENERATOR["PAGES"]


@pytest.mark.parametrize("page", PAGES)
def test_the_committed_page_is_current(page: str) -> None:
    """Who changes an option, a command or the order of the rules writes the page anew."""
    if page == "cli.md" and version("typer").split(".")[:2] < ["0", "29"]:
        pytest.skip("this typer writes its help in other words")
    assert (DOCS / page).read_text("utf-8") == PAGES[page](), "run python docs/_generate.py"


def test_every_option_is_described_once() -> None:
    """An option without a description, or in no group, would be one that nobody finds."""
    rows = re.findall(
        r"^\| `(\w+)` \| (.+) \| (.+) \| (.+) \|$",
        TEXTS["options.md"].partition("\n## Presets\n")[0],
        re.MULTILINE,
    )
    options = sorted(field.alias or name for name, field in FallbackConfig.model_fields.items())
    assert sorted(name for name, *_ in rows) == options
    assert all(all(cells) for cells in rows)


def test_the_reference_shows_every_package() -> None:
    """A public package that the reference leaves out would be documented nowhere."""
    wheel = PROJECT["tool"]["hatch"]["build"]
    public = {
        path.relative_to(folder.parent).with_suffix("").as_posix().replace("/", ".")
        for folder in (ROOT / package for package in wheel["targets"]["wheel"]["packages"])
        for path in folder.rglob("*.py")
        if not re.search(r"/_(?!_init__)", f"/{path.relative_to(folder.parent)}")
    }
    public = {name.removesuffix(".__init__") for name in public} - {"honcho_fallback.cli"}
    shown = re.findall(r"^::: (\S+)$", TEXTS["reference.md"], re.MULTILINE)
    assert sorted(shown) == sorted(public)


def test_the_page_has_the_rooms_of_today() -> None:
    """``why.md``: column "now", in the order of the rooms."""
    now = re.findall(r"^\| [^|]+ \| [\d,]+ \| ([\d,]+) \|", TEXTS["why.md"], re.MULTILINE)
    assert now == [f"{most:,}" for most, _ in ROOMS.values()]


# The table of releases, which runs write.

SCRIPT: dict[str, Any] = runpy.run_path(str(DOCS / "_compatibility.py"))
REPORT = """<testsuites>
<testsuite name="pytest" tests="12" failures="1" errors="1" skipped="3"/>
</testsuites>"""


def test_ranges_and_pins_are_current() -> None:
    """Who changes an extra or a pin writes the page anew; the runs' columns stay as they are."""
    page = TEXTS["compatibility.md"]
    assert SCRIPT["rewritten"](page, {}) == page, "run python docs/_compatibility.py"


def test_a_run_writes_its_own_column(tmp_path: Path) -> None:
    """A failure is named, and what the other run said is kept."""
    junit, page = tmp_path / "newest.xml", TEXTS["compatibility.md"]
    junit.write_text(REPORT, "utf-8")
    before = SCRIPT["table"](page)
    after = SCRIPT["table"](SCRIPT["rewritten"](page, {"newest": SCRIPT["outcome"](junit)}))
    assert after["newest"]["result"] == "7 passed, 3 skipped, **2 failed**"
    assert after["lowest"] == before["lowest"]


def test_the_page_shows_what_a_conversation_costs_today() -> None:
    """The table of prompt caches has the figures of this version."""
    for reset in ("iteration", "turn", "session"):
        two, six = (f"{cost_of_a_conversation(reset, minutes):,.0f}" for minutes in (2, 6))
        assert f'| `reset="{reset}"` | {two} | {six} |' in TEXTS["outages.md"]


# The Proxy's page.

PROXY = TEXTS["proxy.md"]
YAML = re.findall(r"^```yaml\n(.*?)^```$", PROXY, re.DOTALL | re.MULTILINE)
COPIED = ROOT / "examples" / "litellm_proxy"
HANDLER = (COPIED / "production_handler.py").read_text("utf-8")
SHOWN = {
    "docs/proxy.md": YAML[0],
    **{path.name: path.read_text("utf-8") for path in sorted(COPIED.glob("*.yaml"))},
}


def test_the_page_names_what_there_is() -> None:
    """The YAML's callbacks exist, its ranks are those of one chain, its own handler is made."""
    first, own = map(yaml.safe_load, YAML)
    module, _, name = first["litellm_settings"]["callbacks"].rpartition(".")
    assert module == "honcho_fallback_litellm"
    assert name in honcho_fallback_litellm.__all__
    ranks = [one["model_info"]["fallback_rank"] for one in first["model_list"]]
    assert ranks == [0, 1]
    assert own["litellm_settings"]["callbacks"] == ["prometheus", "my_handler.handler"]
    (code,) = re.findall(r"^```python\n(.*?)^```$", PROXY, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "my_handler"}
    exec(compile(code, "proxy.md", "exec"), names)  # noqa: S102 # our own page
    assert isinstance(names["handler"], honcho_fallback_litellm.FallbackProxyHandler)


@pytest.mark.parametrize("shown", SHOWN)
def test_a_hang_is_bounded_in_what_an_operator_copies(shown: str) -> None:
    """By each deployment's own timeout, or by that of the handler that the file names."""
    config = yaml.safe_load(SHOWN[shown])
    bounds = [one["litellm_params"].get("timeout") for one in config["model_list"]]
    if "production_handler.handler" in config["litellm_settings"]["callbacks"]:
        bounds = [float(*re.findall(r"FallbackConfig\(.*?\btimeout=(\d+)", HANDLER))]
    assert all(bound is not None and bound <= 60 for bound in bounds), bounds


def test_the_cooldowns_redis_is_not_litellms() -> None:
    """LiteLLM takes what is called REDIS in the environment, and waits 5 s for a silent one."""
    read = re.findall(r"RedisCooldown\(os\.environ\[\"(\w+)\"\]", HANDLER)
    assert [name for name in read if "REDIS" in name] == []
    assert all(f"#   {name} " in SHOWN["production.yaml"] for name in read)
    assert all(f"`{name}`" in PROXY for name in read)


# What stands in several places.

LLMS = (ROOT / "llms.txt").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation_and_shown_to_coding_agents() -> None:
    """``llms.txt`` lists the pages that the site does, and no other; one outside is lost."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    navigation = {*re.findall(r"^ +- .+: (\S+\.md)$", text, re.MULTILINE)}
    assert TEXTS.keys() <= navigation
    pages = {f"docs/{page}".removeprefix("docs/project/") for page in navigation}
    assert {*re.findall(r"\]\((\S+\.md)\)", LLMS)} == pages


def test_coding_agents_are_told_names_that_there_are() -> None:
    """A name in ``llms.txt`` that was renamed would be written into other people's code."""
    names = {*re.findall(r"`(?:[\w.]+ = )?([A-Z]\w+[a-z]\w*)", LLMS)} - {"ExceptionGroup"}
    packages = [*ROOT.glob("honcho_fallback/__init__.py"), *ROOT.glob("adapters/*/__init__.py")]
    sources = (path.read_text("utf-8").partition("__all__ = [")[2] for path in packages)
    exported = {one for text in sources for one in re.findall(r'"(\w+)"', text.partition("]")[0])}
    assert names
    assert names <= exported, names - exported


def test_supported_pythons_stand_in_one_list() -> None:
    """The oldest Python, the classifiers and the workflow's matrix say the same."""
    project = PROJECT["project"]
    prefix = "Programming Language :: Python :: "
    named = [one.removeprefix(prefix) for one in project["classifiers"] if one.startswith(prefix)]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert workflow["jobs"]["run"]["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"
