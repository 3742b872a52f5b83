"""Delegated inference that cannot succeed: a tool calls a model that is gone for good.

A text is read by groups of words, not by sentences: something that a request names (a model, a
tier, a login) and a word that says what is wrong with it, near each other and in any order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from honcho_fallback import FailureKind, FallbackExhausted

if TYPE_CHECKING:
    from collections.abc import Iterator

Terminal = Literal["budget_exhausted", "provider_config"]
TERMINALS: dict[str, Terminal] = {name: name for name in get_args(Terminal)}

_READ = 4000  # characters
# Without one of these the words below are a tool's own business.
_NOT_ON_PROVIDER = "may not be available on your provider"
_ENVELOPE = re.compile(
    r"all (?:providers|models|providers/models|providers and models)(?: have)? failed"
    r"|failed and did not complete"
)
_SETTINGS = frozenset(
    {
        FailureKind.AUTHENTICATION,
        FailureKind.PERMISSION,
        FailureKind.MODEL_UNAVAILABLE,
        FailureKind.INVALID_REQUEST,
    }
)

# The name of a field in JSON is no part of the sentence that is its value.
_SENTENCE = re.compile(r"[.!?;]\s|\n|;|[\"']\s?:")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")  # ModelNotAllowed
_TOKEN = re.compile(r"[a-z0-9'][a-z0-9_'./:@-]*")
_JOINTS = re.compile(r"[_./:@-]+")
_FAR = 8  # words between what is named and what is wrong with it
_NEGATION_FAR = 3  # words: "not on the list of available"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOT = _words("not no cannot never without")


class _Group(NamedTuple):
    """Say what is named, and what may be wrong with it.

    Args:
        subjects: What a request names.
        wrong: Words that by themselves say what is wrong.
        missing: Words that do so after a "not".
        only: Words that do so beside ``only`` or ``names``: what else there is to choose from.
        other: Words that, between the two or after the wrong one, are what the sentence is about.
        before: Words that right before a subject make it something else.
    """

    subjects: frozenset[str]
    wrong: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    other: frozenset[str] = frozenset()
    before: frozenset[str] = frozenset()


_LISTED = _words("available supported valid allowed accepted")
_MODEL = _Group(
    _words("model models tier tiers deployment deployments engine"),
    _words(
        "unknown unavailable unsupported invalid nonexistent unrecognized unrecognised deprecated"
        " retired decommissioned discontinued disabled abstract inaccessible restricted denied"
        " missing required misconfigured"
    ),
    _LISTED
    | _words(
        "found exist exists support permitted enabled accessible access recognized recognised"
        " known served offered deployed configured included include includes listed such named"
        " called authorized authorised entitled"
    ),
    _LISTED,
    # Words of outages, and of what a model says.
    _words(
        "error errors json response responses output outputs answer answers argument arguments"
        " format reply schema content result results file files tool tools function functions call"
        " calls service network host server connection memory reason page"
    ),
)
_GROUPS = (
    _Group(
        _words("authentication apikey credentials"),
        _words("invalid incorrect wrong missing expired revoked required rejected malformed"),
        _words("valid provided found configured set active accepted authorized recognized"),
        other=_words("tool argument arguments response"),
    ),
    _Group(
        _words("subscription"),
        _words("requires require required needs need needed upgrade missing expired"),
        _words("include includes included cover covers active"),
    ),
    _Group(
        _words("region country territory location"),
        _words("unsupported blocked restricted unavailable disallowed"),
        _LISTED | _words("served offered enabled permitted"),
    ),
    _Group(
        _words(
            "tools tool chat function functions calling image images vision streaming thinking"
        ),
        _words("unsupported"),
        _words("support supports supported supporting"),
    ),
    _Group(
        _words("temperature"),
        _words("invalid unsupported"),
        _LISTED | _words("support permitted"),
        _LISTED,
    ),
)
# "The time budget is exceeded" is a timeout.
_NO_MONEY = _words("time timeout token tokens retry error context thinking iteration step rate")
_BUDGETS = (
    _Group(
        _words("budget credit credits balance"),
        _words("insufficient exceeded exhausted depleted negative low"),
        _words("remaining left enough sufficient"),
        before=_NO_MONEY,
    ),
    _Group(_words("credit credits"), _words("add more out top")),
)
_TOOL = _Group(
    _words("tool tools function functions"),
    _words("unknown invalid nonexistent unrecognized unrecognised unavailable"),
    _words("valid found exist exists known available registered recognized recognised defined")
    | _words("such named called"),
)
_OF_A_CALL = _words("argument arguments parameter parameters input inputs output result response")
# A model that cannot be had now may be had later.
_FOR_NOW = _words(
    "temporarily temporary currently moment later overloaded busy capacity loading time timeout"
    " timed retry retrying retryable unreachable"
)


def terminal_text(text: str) -> Terminal | None:
    """Read a tool's text for a delegated call that cannot succeed."""
    text = text[:_READ]
    lower = text.lower()
    not_on_provider = _NOT_ON_PROVIDER in lower
    if not not_on_provider and ("failed" not in lower or _ENVELOPE.search(lower) is None):
        return None
    # "All models failed" names no model that is wrong.
    sentences = [words for part in _ENVELOPE.split(_spaced(text)) for words in _sentences(part)]
    if any(_fits(group, words) for group in _BUDGETS for words in sentences):
        return "budget_exhausted"
    if not_on_provider or any(map(_is_about_settings, sentences)):
        return "provider_config"
    return None


def is_unknown_tool(tool: str, text: str) -> bool:
    """Tell whether a text says that there is no such tool as the one that was called."""
    text = text[: len(tool) + _READ // 10]
    lower = text.lower()
    if not tool or tool.lower() not in lower or not any(map(lower.__contains__, _TOOL.subjects)):
        return False
    words = next(_sentences(_spaced(text.replace(tool, " "))))
    return not _OF_A_CALL.intersection(words) and _fits(_TOOL, words)


def terminal_error(error: BaseException) -> Terminal | None:
    """Read an exception for the same: a policy of ours whose every target is gone for good."""
    exhausted: FallbackExhausted | None = None
    seen: set[int] = set()
    below: BaseException | None = error
    while below is not None and id(below) not in seen:
        seen.add(id(below))
        if isinstance(below, FallbackExhausted):
            exhausted = below
            break
        below = below.__cause__ or (None if below.__suppress_context__ else below.__context__)
    if exhausted is None:
        return None
    kinds = {attempt.kind for attempt in exhausted.attempts}
    if FailureKind.QUOTA in kinds and kinds <= {FailureKind.QUOTA, *_SETTINGS}:
        return "budget_exhausted"
    return "provider_config" if kinds and kinds <= _SETTINGS else None


def _is_about_settings(words: list[str]) -> bool:
    if not _FOR_NOW.intersection(words) and _fits(_MODEL, words):
        return True
    return any(_fits(group, words) for group in _GROUPS)


def _fits(group: _Group, words: list[str]) -> bool:
    if group.subjects.isdisjoint(words):
        return False
    return any(
        words[subject] in group.subjects
        and group.before.isdisjoint(words[max(0, subject - 1) : subject])
        and _belongs(group, words, subject, first, end)
        for first, end in _complaints(group, words)
        for subject in range(max(0, first - _FAR), min(len(words), end + _FAR))
    )


def _complaints(group: _Group, words: list[str]) -> Iterator[tuple[int, int]]:
    """Find what says that something is wrong: its first word, and what follows its last."""
    for place, word in enumerate(words):
        if word in group.wrong:
            yield place, place + 1
        elif word in _NOT or word.endswith("n't"):
            near = words[place + 1 : place + 2 + _NEGATION_FAR]
            for far, after in enumerate(near, 2):
                if after in group.missing:
                    yield place, place + far
                    break
        elif word in {"only", "names"}:
            near = words[max(0, place - _FAR) : place + _FAR]
            if group.only.intersection(near):
                yield place, place + 1


def _belongs(group: _Group, words: list[str], subject: int, first: int, end: int) -> bool:
    between = words[min(subject, first) : max(subject + 1, end)]
    # "an unknown error of the model": an adjective is about the noun after it.
    noun = words[end : end + 1] if end - first == 1 and words[first] in group.wrong else []
    return group.other.isdisjoint(between) and group.other.isdisjoint(noun)


def _spaced(text: str) -> str:
    text = _HUMP.sub(" ", text.replace("\u2019", "'")).lower()
    return text.replace("api key", "apikey").replace("api_key", "apikey")


def _sentences(text: str) -> Iterator[list[str]]:
    for sentence in _SENTENCE.split(text):
        words: list[str] = []
        for token in _TOKEN.findall(sentence):
            # A name such as gpt-5.5 or a/b is one word, and none of ours.
            named = "/" in token or any(sign.isdigit() for sign in token)
            words += ["#"] if named else filter(None, _JOINTS.split(token.strip("'")))
        yield words
