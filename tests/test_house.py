"""How the package is built: downhill, without circles, and with few doors on the way of a call."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import honcho_fallback
from honcho_fallback import FallbackPolicy, FallbackRun, Target
from honcho_fallback.testing import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(honcho_fallback.__file__).parent
CORE = PACKAGE / "_core"
SOURCES = [
    path
    for folder in ("honcho_fallback", "adapters")
    for path in (ROOT / folder).rglob("*.py")
    if "__pycache__" not in path.parts
]


# Walks: each module is a room, and the classifier, which is one question, is one.


def room_of(path: Path) -> str | None:
    """Name the room of a file, or None for what is not ours."""
    for folder in (ROOT / "honcho_fallback", ROOT / "adapters"):
        if path.is_relative_to(folder):
            parts = path.relative_to(folder).with_suffix("").parts
            return "_classify" if parts[0] == "_classify" else ".".join(parts)
    return None


def walk(call: Callable[[], object]) -> list[str]:
    """Make a call that was made before, and return the rooms that it visits, in order."""
    call()  # what is made once is made
    rooms: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            room = room_of(Path(frame.f_code.co_filename))
            if room is not None:
                rooms.append(room)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [room for room, _ in groupby(rooms)]


def by_the_core() -> object:
    policy = FallbackPolicy([Target("primary"), Target("fallback")])
    down = StatusError(503)

    def ask(attempt: Any) -> str:
        if attempt.position == 0:
            raise down
        return "hello"

    return lambda: policy.call(ask)


def by_a_chat_model() -> object:
    adapter = pytest.importorskip("honcho_fallback_langchain")
    models = pytest.importorskip("tests.helpers.chat_models")
    model = adapter.FallbackChatModel(models.dead(), models.alive())
    return lambda: model.invoke("hi")


def by_an_agent() -> object:
    agents = pytest.importorskip("langchain.agents")
    adapter = pytest.importorskip("honcho_fallback_langchain")
    models = pytest.importorskip("tests.helpers.chat_models")
    middleware = adapter.FallbackMiddleware(models.alive())
    agent = agents.create_agent(models.dead(), middleware=[middleware])
    return lambda: agent.invoke({"messages": [("user", "hi")]})


def by_a_router() -> object:
    litellm = pytest.importorskip("litellm")
    adapter = pytest.importorskip("honcho_fallback_litellm")
    params: Any = {"model": "openai/m", "api_key": "k"}
    down = {**params, "mock_response": "litellm.RateLimitError"}
    router = litellm.Router(
        [
            {"model_name": "g", "litellm_params": down, "model_info": {"fallback_rank": 0}},
            {
                "model_name": "g",
                "litellm_params": {**params, "mock_response": "hello"},
                "model_info": {"fallback_rank": 1},
            },
        ]
    )
    adapter.FallbackRoutingStrategy(respect_cooldown=False).register(router, warm=False)
    return lambda: router.completion("g", [{"role": "user", "content": "hi"}])


@pytest.mark.filterwarnings("ignore:Item 'summary' on TypedDict:UserWarning")  # LiteLLM's types
@pytest.mark.parametrize(
    ("make", "most"),
    [(by_the_core, 15), (by_a_chat_model, 28), (by_an_agent, 40), (by_a_router, 35)],
)
def test_a_first_failure_changes_rooms_seldom(make: Any, most: int) -> None:
    """Who follows a switch from its entry opens few files."""
    visits = walk(make())
    assert {"_core.run", "_core.rules", "_core.observers", "_classify"} <= {*visits}
    assert len(visits) - 1 <= most, visits


# Arrows: imports for type checkers and those inside functions count: the next reader follows them.


def name_of(path: Path) -> str:
    parts = path.with_suffix("").relative_to(ROOT).parts
    parts = parts[1:] if parts[0] == "adapters" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, names: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & names
            yield from inner or {node.module} & names


def circle_in(arrows: dict[str, set[str]]) -> set[str]:
    """Return the rooms of which none can be read first; none where there is no circle."""
    left = {room: {*needed} - {room} for room, needed in arrows.items()}
    while free := {room for room, needed in left.items() if not needed & left.keys()}:
        left = {room: needed for room, needed in left.items() if room not in free}
    return {*left}


def arrows_between(rooms: Iterable[Path]) -> dict[str, set[str]]:
    paths = {name_of(path): path for path in rooms}
    return {name: {*imported(path, {*paths})} - {name} for name, path in paths.items()}


def test_no_module_stands_in_a_circle_of_imports() -> None:
    """Whoever reads one file has read what it stands on."""
    arrows = arrows_between(path for path in SOURCES if path.name != "__init__.py")
    assert circle_in(arrows) == set()
    assert len(arrows) > 100


def test_no_folder_stands_in_a_circle_of_imports() -> None:
    """Values, the classifier, the core, and what stands around them, each above the last."""
    folders: dict[str, set[str]] = {}

    def folder_of(module: str) -> str:
        return ".".join(module.split(".")[:2])

    for module, needed in arrows_between(SOURCES).items():
        folder = folder_of(module)
        folders.setdefault(folder, set()).update({folder_of(one) for one in needed} - {folder})
    assert circle_in(folders) == set()


def test_a_run_has_at_most_12_public_members() -> None:
    """Whoever drives a run by hand learns a dozen names."""
    members = [name for name in dir(FallbackRun) if not name.startswith("_")]
    assert len(members) <= 12, members


@pytest.mark.parametrize("room", ["rules", "run"])
def test_the_heart_begins_with_its_theory(room: str) -> None:
    """The two rooms that decide say how before they do."""
    source = (CORE / f"{room}.py").read_text(encoding="utf-8")
    assert "Theory of operation" in (ast.get_docstring(ast.parse(source)) or "")


def test_nothing_is_imported_by_a_name_in_a_string() -> None:
    """Import rules see no strings: a module named in one would be known by nobody."""
    by_string = re.compile(r"import_module\(\s*f?[\"']honcho_fallback")
    found = [path.name for path in SOURCES if by_string.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_a_file_has_a_name_of_its_own() -> None:
    """Whoever looks for a behaviour by a file's name finds one."""
    counts = Counter(path.name for path in SOURCES)
    assert [name for name in counts if counts[name] > 1] == ["__init__.py"]


def test_what_writes_files_is_known() -> None:
    """G-44: records are saved where somebody asked for it; nothing else is written."""
    writes = re.compile(r"FileHandler|\.write_|mkdir\(|mkstemp|TemporaryFile|open\(.*[\"'][wax]")
    found = {path.name for path in SOURCES if writes.search(path.read_text(encoding="utf-8"))}
    assert found == {"records.py"}


# Rooms, with the most lines of Python that each may have. A figure only falls: who shortens a room
# lowers it, and who lengthens one lowers another by more in the same change.
ROOMS: dict[str, tuple[int, tuple[str, ...]]] = {
    "core, values, redaction": (
        5533,  # connections of dead event loops cost no call: classifier and observing gave more
        ("honcho_fallback/_core", "honcho_fallback/_values", "honcho_fallback/redaction.py"),
    ),
    # It loses fewer calls: pages, crashes, JSON that does not fit, accounts that are switched off.
    "classifier": (2462, ("honcho_fallback/_classify",)),
    # A model that thinks goes on behind another's calls in three adapters more: LangChain and
    # Honcho gave less for it than it took.
    "providers": (1150, ("honcho_fallback/providers",)),
    "observing": (
        1084,
        tuple(
            f"honcho_fallback/{name}.py"
            for name in ("measurements", "records", "redis", "spans", "stores", "texts")
        ),
    ),
    "testing": (777, ("honcho_fallback/testing", "adapters/honcho_fallback_pytest")),
    "tools": (1179, ("honcho_fallback/tools",)),
    "simulate": (861, ("honcho_fallback/simulate",)),
    "cli": (559, ("honcho_fallback/cli",)),
    "langchain": (3668, ("adapters/honcho_fallback_langchain",)),
    # Who writes into which metadata is told once again; LangChain gave more for it.
    "litellm": (2373, ("adapters/honcho_fallback_litellm",)),
    "honcho": (1748, ("adapters/honcho_fallback_honcho",)),
    "tracing": (
        899,  # a registry with others' metrics is refused as a whole
        tuple(f"adapters/honcho_fallback_{name}" for name in ("langfuse", "otel", "prometheus")),
    ),
    # The agents of one run may have a chain each, accounts are told apart, and a stream that is
    # cancelled ends its call: LangChain and Honcho gave for it. Call ids are made valid under
    # Pydantic AI, too: LiteLLM, observing and classifier gave more.
    "agents": (
        918,
        ("adapters/honcho_fallback_openai_agents", "adapters/honcho_fallback_pydantic_ai"),
    ),
}
_SLACK = 20


def lines_of(places: Iterable[str]) -> int:
    within = [path for path in SOURCES if any(path.is_relative_to(ROOT / one) for one in places)]
    return sum(len(path.read_text("utf-8").splitlines()) for path in within)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_only_shrinks(room: str) -> None:
    """It has no more lines than it had, and its figure follows it down."""
    most, places = ROOMS[room]
    lines = lines_of(places)
    assert lines <= most, f"{room} has {lines} lines: take {lines - most} away"
    assert most - lines <= _SLACK, f"{room} has {lines} lines: write that into the table"


def test_every_module_is_in_one_room() -> None:
    """Nothing grows beside them."""
    places = [place for _, some in ROOMS.values() for place in some]
    for path in SOURCES:
        count = sum(path.is_relative_to(ROOT / place) for place in places)
        is_face = path == PACKAGE / "__init__.py"
        assert count == (0 if is_face else 1), path
