"""The errors of this package, and the checks that raise them at the border.

FallbackError
├── AnswerRejected                         an answer that arrived and is not usable
├── CredentialError                        there is no valid key or token for a target
├── DeadlineExceeded    (TimeoutError)     time ran out before a target had answered
├── ErrorStandIn                           a provider's error that could not be pickled
├── FallbackConfigError (ValueError)       bad input, at construction
├── FallbackExhausted   (ExceptionGroup)   every target that could be asked failed
├── OutcomeUnknown                         a request may have had an effect: nobody is asked again
├── StreamInterrupted                      a stream broke after content had been handed out
└── TargetUnavailable                      raised by ``ask``: this target cannot be asked, go on
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from honcho_fallback.redaction import redact

if TYPE_CHECKING:
    from pydantic import ValidationError

    from honcho_fallback._values.failure import Failure


class FallbackError(Exception):
    """Stand above every error of this package."""


class FallbackConfigError(FallbackError, ValueError):
    """Refuse bad input, with the field, what was found and the fix in the message."""

    @classmethod
    def about(cls, field: str, problem: str, fix: str) -> Self:
        """Say what is wrong with one field.

        Args:
            field: Its name.
            problem: What is wrong with it, without secrets.
            fix: What to do, in the imperative.
        """
        return cls(f"{field}: {problem}; {fix}")

    @classmethod
    def invalid(cls, error: ValidationError, where: str, names: Iterable[str] = ()) -> Self:
        """Say what is wrong with values that a pydantic model refused, a line for each.

        Args:
            error: Pydantic's.
            where: What was read, such as the file's name.
            names: The keys that exist, where one model has them all.
        """
        lines: dict[str, None] = {}
        for detail in error.errors(include_url=False):
            steps = [
                f"[{step}]" if isinstance(step, int) else f".{step}" for step in detail["loc"]
            ]
            while steps and steps[-1].startswith("["):
                steps.pop()  # an entry of a list is shown
            path = f"{where}: {''.join(steps).removeprefix('.')}".removesuffix(": ")
            fix = detail["msg"].removeprefix("Value error, ")
            if detail["type"] == "missing":
                lines[f"{path}: it is missing; add it"] = None
            elif detail["type"] == "extra_forbidden":
                guess = unknown_name(str(detail["loc"][-1]), names) if names else "take it out"
                lines[f"{path}: no such key; {guess}"] = None
            else:
                given: Any = detail["input"]
                got = "" if isinstance(given, dict | list | tuple) else f"got {shown(given)}; "
                lines[f"{path}: {got}{fix}"] = None
        return cls("\n".join(lines))

    @classmethod
    def unknown(cls, name: str, names: Iterable[str], what: str = "option") -> Self:
        """Say that a name does not exist, and which one may be meant.

        Args:
            name: The one that was given.
            names: Those that exist.
            what: What they name.
        """
        return cls.about(name, f"no such {what}", unknown_name(name, names))


class CredentialError(FallbackError):
    """Tell that a credential is missing or could not be refreshed; never shows one.

    Raised by ``get`` inside `ask`, it counts as the provider's 401, without a request.
    """

    status_code = 401


class WrongVerbError(FallbackConfigError):
    """Refuse what ``ask`` returned: a coroutine, a generator, or nothing to await."""


class AnswerRejected(FallbackError):  # noqa: N818 # in line with the others
    """Stand for an answer that is not usable: it failed under HTTP 200, or ``validate`` said no.

    Args:
        why: What ``check_response`` returned, which then is what ``classify`` says; or a sentence.
        raised: What the program's reader of the answer raised, if anything: a caller gets that in
            this one's place, and options that name its class count.
    """

    def __init__(self, why: Failure | str, *, raised: Exception | None = None) -> None:
        super().__init__(why if isinstance(why, str) else why.reason)
        self.failure = None if isinstance(why, str) else why
        self.raised = raised


class ErrorStandIn(FallbackError):  # noqa: N818 # in line with the others
    """Stand for a provider's error that does not survive a pickle or a copy, as many SDKs' do.

    Inside FallbackExhausted and its like. It keeps what the error meant, and nothing of what the
    provider or the request said; ``classify`` takes it for the error itself.
    """

    failure: Failure | None = None
    status_code: int | None = None


class TargetUnavailable(FallbackError):  # noqa: N818 # in line with the others
    """Raise it in ``ask`` where this target cannot be asked at all: the next one is asked.

    For a host that looks up a client or a key itself and finds none. It counts as
    ``model_unavailable``.
    """


def require_text(field: str, value: object, fix: str) -> None:
    """Refuse anything but a string with something in it."""
    if not isinstance(value, str) or not value.strip():
        shown = repr(value) if isinstance(value, str | None) else f"a {type(value).__name__}"
        raise FallbackConfigError.about(field, f"got {shown}", fix)


def require_texts(field: str, value: Any, fix: str) -> frozenset[str]:
    """Refuse anything but texts with something in them; one text alone is its letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise FallbackConfigError.about(field, f"got {shown(value)}", fix)
    texts: list[Any] = [*value]  # pyright: ignore[reportUnknownVariableType] # anybody's
    for one in texts:
        require_text(field, one, fix)
    return frozenset(texts)


def require_type(field: str, value: object, kind: Any, fix: str) -> None:
    """Refuse a value of another type; the value itself is never shown."""
    if not isinstance(value, kind):
        raise FallbackConfigError.about(field, f"got a {type(value).__name__}", fix)


def require_number(field: str, value: object, least: float, unit: str = "seconds") -> float:
    """Refuse anything but a finite number that is large enough."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not least <= number < math.inf:
        raise FallbackConfigError.about(field, f"got {value!r}", f"pass {unit}, {least:g} or more")
    return float(number)


def can_be_pickled(value: object) -> bool:
    """Tell whether a value comes back from a pickle; many SDKs' errors do not."""
    import pickle  # noqa: PLC0415 # needed here alone

    try:
        pickle.loads(pickle.dumps(value))  # noqa: S301 # its own bytes
    except Exception:  # noqa: BLE001 # of anybody's class
        return False
    return True


def shown(value: object) -> str:
    """Show a wrong value: numbers, short texts and plain containers of them, else its type."""
    if isinstance(value, str | int | float | None) and len(repr(value)) <= 60:
        # A key in the wrong place is not shown either.
        return f"{redact(value)!r} (str)" if isinstance(value, str) else repr(value)
    if isinstance(value, set | frozenset | list | tuple | dict):
        parts: list[object] = list(value)  # pyright: ignore[reportUnknownArgumentType] # anybody's container
        text = repr(value)  # pyright: ignore[reportUnknownArgumentType] # as above
        if len(text) <= 120 and all(isinstance(part, str | int | float) for part in parts):
            return redact(text)
    return f"a {type(value).__name__}"  # pyright: ignore[reportUnknownArgumentType] # as above


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Find the name that somebody who wrote this one may have meant."""
    # Imported for an error only: it costs more than the rest of this module.
    from difflib import get_close_matches  # noqa: PLC0415

    return next(iter(get_close_matches(name, list(names), n=1, cutoff=0.7)), None)


def unknown_name(name: str, names: Iterable[str]) -> str:
    """Say what to do about a name that does not exist: the nearest one, then all of them."""
    known = list(names)
    guess = nearest(name, known)
    question = f"did you mean {guess}? " if guess else ""
    return f"{question}choose from {', '.join(known)}"
