"""Names that look as if they configured a fallback, and that nothing reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from honcho_fallback_honcho._notices import Notice
from honcho_fallback_honcho._slots import GLOBALS, PREFIXES_OF, SLOTS, SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Families that Honcho's documents, its pull request 692 or their readers made up, each with the
# prefixes that are read in their place.
_FAMILIES: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"DIALECTIC_MODEL_CONFIG(__.*|$)"), PREFIXES_OF["DIALECTIC"]),
    (re.compile(r"(?:DREAM|DREAMER)_MODEL_CONFIG(__.*|$)"), PREFIXES_OF["DREAM"]),
    (re.compile(r"DREAMER_DEDUCTION_MODEL_CONFIG(__.*|$)"), PREFIXES_OF["DREAM"][:1]),
    (re.compile(r"DREAMER_INDUCTION_MODEL_CONFIG(__.*|$)"), PREFIXES_OF["DREAM"][1:]),
    (
        re.compile(r"FALLBACK_MODEL_CONFIG(__.*|$)"),
        tuple(f"{slot.env}__FALLBACK" for slot in SLOTS),
    ),
)
_ABOUT_A_MODEL = re.compile(r"MODEL_CONFIG|FALLBACK")
_SECTIONS = ("DERIVER_", "DIALECTIC_", "DREAM_", "SUMMARY_")
_DEEP = "__FALLBACK"
_LOOSE, _CLOSE = 0.75, 0.9


def nearest(wrong: str, names: Sequence[str]) -> str | None:
    """Find the name that was probably meant, or None."""
    begun = [name for name in names if name.startswith(f"{wrong}_")]
    return next(iter([*get_close_matches(wrong, names, n=1, cutoff=_LOOSE), *begun]), None)


def find_misnamed(names: Iterable[str]) -> Iterator[Notice]:
    """Name each variable that is meant for an agent's model and that nothing reads."""
    for name in sorted({name.upper() for name in names}):
        fix = None if _is_read(name) else _right_name(name)
        if fix is not None:
            fallback = "FALLBACK" in name
            yield Notice("ignored", name, "Honcho ignores it", fix, breaks_fallback=fallback)


def toml_names(file: Mapping[str, Any]) -> Iterator[str]:
    """Name the variables that stand for the keys of a ``config.toml``."""
    for section, table in file.items():
        if isinstance(table, Mapping):
            for key, value in cast("Mapping[str, Any]", table).items():
                yield from _leaves(f"{section}_{key}", value)


def _leaves(name: str, value: object) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, inner in cast("Mapping[str, object]", value).items():
            yield from _leaves(f"{name}__{key}", inner)
    else:
        yield name.upper()


def _is_read(name: str) -> bool:
    if name in GLOBALS or name == "DIALECTIC_LEVELS":
        return True
    # What stands below an agent's prefix was read; the tree reports its unknown keys.
    return any(name == slot or name.startswith(f"{slot}__") for slot in _prefixes())


@cache
def _prefixes() -> tuple[str, ...]:
    return tuple(slot.env.upper() for slot in SLOTS)


@cache
def _known() -> tuple[str, ...]:
    below = [f"{_DEEP}__{suffix}" for suffix in SUFFIXES]
    own = [f"__{suffix}" for suffix in SUFFIXES]
    return tuple(f"{prefix}{tail}" for prefix in _prefixes() for tail in (*own, *below))


def _right_name(name: str) -> str | None:
    for pattern, prefixes in _FAMILIES:
        match = pattern.fullmatch(name)
        if match is not None:
            return _among(prefixes, match[1])
    is_about_a_model = _ABOUT_A_MODEL.search(name) is not None
    if name.startswith("MCP_") and is_about_a_model:
        return "the MCP server asks no model of its own; remove it"
    if not name.startswith((*_SECTIONS, "LLM_")):  # other software has a MODEL_CONFIG of its own
        return None
    cutoff = _LOOSE if is_about_a_model else _CLOSE
    close = get_close_matches(name, (*_known(), *GLOBALS), n=1, cutoff=cutoff)
    if close:
        return f"the name is {close[0]}"
    return f"the names begin with {', '.join(_prefixes())}" if is_about_a_model else None


def _among(prefixes: tuple[str, ...], rest: str) -> str:
    """Say which names of several agents are meant; each of them is one that is read."""
    names = [f"{prefix}{rest}" for prefix in prefixes]
    if rest and names[0].upper() not in _known():
        names = list(prefixes)
    others = f", and likewise {', '.join(names[1:])}" if len(names) > 1 else ""
    return f"the name {'begins with' if names[0] in prefixes else 'is'} {names[0]}{others}"
