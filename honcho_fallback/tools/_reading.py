"""What a tool's text says: the rules of ``tools.toml``, the statuses and exit codes in it.

A number counts as a status only where one is written (after ``http``, ``status`` or ``code``), or
where somebody answers with it and nothing is counted by it: "upstream returned 503" is one, "503
rows were returned" is none. What a command printed before it exited is the command's own.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from honcho_fallback.texts import TextRules, Vocabulary
from honcho_fallback.tools._failure import ToolBlockedError, ToolDeniedError
from honcho_fallback.tools._failure import ToolFailureKind as Kind

# Characters; what comes between is the tool's output, not its complaint. A command's exit code
# stands at either end.
_READ, _TAIL = 4000, 200
_COMMAND_NOT_FOUND = 127  # POSIX shells
_EXIT_CODES = range(1, 256)
_EXITED = re.compile(
    r"\b(?:exit(?:ed)?(?:[ _-]?(?:with|code|status|value|an?|non-?zero)){1,5}|exited"
    r"|return[ _-]?code|rc)['\"]?[\s:=(]{1,3}(-?\d{1,3})(?![\w.]*\d|\w)",
    re.IGNORECASE,
)
_STATUS = re.compile(
    r"""
    (?: ^\W{0,3}
      | (?<!expected\ )\b(?:http(?:[ /]\d(?:\.\d)?)?|status(?:[ _-]?code)?|(?<!of\ )code
                          |(?:http|api|server|client)?error)['"]?[\s:=(\#\[-]{0,3}['"]?
      | \b(?:server|upstream|backend|api|gateway|endpoint|response)\s[(\[]?
      | \b(?:answer(?:s|ed)|repli(?:es|ed)|respond(?:s|ed)|return(?:s|ed)|gets?|got|hit|received
           |failed\ with)
        (?:\ (?:with|back|an?|another|only|error|status)){0,3}\W{1,3}
    )
    (?<![\d$€£])([45]\d\d)(?![\w%]|[.,:/-]\d)
    (?!\ (?!this|was|has|errors|status)\w+[^s\W]s\b)  # what is counted follows at once
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Without one of these a text about a model is a tool's own business.
_NOT_ON_PROVIDER = "may not be available on your provider"
_DELEGATED = re.compile(
    r"all (?:providers|models|providers/models|providers and models)(?: have)? failed"
    r"|failed and did not complete",
    re.IGNORECASE,
)
_FIELD = re.compile(r"[\"']\s?:")  # its name in JSON is no part of the sentence that is its value

STATUSES: dict[int, Kind] = {
    **dict.fromkeys((401, 403), Kind.BAD_CREDENTIALS),  # an external 403 is no policy
    408: Kind.TIMEOUT,
    **dict.fromkeys((429, 500, 502, 503, 504, *range(520, 525), 529), Kind.SERVICE_UNAVAILABLE),
}
_TABLE = tomllib.loads(Path(__file__).with_name("tools.toml").read_text(encoding="utf-8"))
_WORDS = Vocabulary(_TABLE["words"])
# In this order: a call that policy forbids also says "permission denied", a refused login also
# "could not connect".
_ORDER = tuple(map(Kind, _TABLE["failure"]))
_FAILURES = TextRules(_WORDS, zip(_ORDER, _TABLE["failure"].values(), strict=True))
_MISSES = TextRules(_WORDS, _TABLE["miss"].items())
TERMINALS = tuple(_TABLE["delegated"])  # why a delegated call cannot succeed
_TERMINALS = TextRules(_WORDS, _TABLE["delegated"].items())


def shortened(text: str) -> str:
    """Return what is read of a text."""
    return text if len(text) <= _READ else f"{text[: _READ - _TAIL]}\n{text[-_TAIL:]}"


def marked(text: str) -> Kind | None:
    """Read the host's own markers, which beat everything."""
    if ToolBlockedError.marker in text:
        return Kind.BLOCKED_BY_POLICY
    if ToolDeniedError.marker in text:
        expired = any(word in text for word in ("timed out", "timeout", "expired"))
        return Kind.APPROVAL_EXPIRED if expired else Kind.DENIED
    return None


def kind_of_text(text: str) -> Kind | None:
    """Say what a tool's text means, or None where it says nothing."""
    code = exit_code_of(text)
    if code is not None:
        return kind_of_exit(code)
    kinds = {_FAILURES.meaning(text), *map(STATUSES.get, map(int, _STATUS.findall(text)))}
    return next((kind for kind in _ORDER if kind in kinds), None)


def kind_of_exit(code: int) -> Kind:
    """Say what the exit code of a command means; what it printed is its own business."""
    return Kind.MISSING_APP if code == _COMMAND_NOT_FOUND else Kind.UNKNOWN


def exit_code_of(text: str) -> int | None:
    """Return the exit code that a text states of a command that failed, or None."""
    codes = map(int, _EXITED.findall(text))
    return next((code for code in codes if code < 0 or code in _EXIT_CODES), None)


def is_miss(text: str) -> bool:
    """Tell whether a text says that there is no tool of that name."""
    return _MISSES.meaning(shortened(text)) is not None


def terminal_text(text: str) -> str | None:
    """Read a tool's text for a delegated call that cannot succeed: why, or None."""
    text = text[:_READ]
    not_on_provider = _NOT_ON_PROVIDER in text.lower()
    if not not_on_provider and _DELEGATED.search(text) is None:
        return None
    # "All models failed" names no model that is wrong.
    parts = [part for among in _DELEGATED.split(text) for part in _FIELD.split(among)]
    reasons = set(map(_TERMINALS.meaning, parts))
    if not_on_provider:
        reasons.add("provider_config")
    return next((reason for reason in TERMINALS if reason in reasons), None)
