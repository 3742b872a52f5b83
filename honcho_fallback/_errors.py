"""The errors of this package.

FallbackError
├── AnswerRejected                         an answer that arrived and is not usable
├── DeadlineExceeded    (TimeoutError)     time ran out before a target had answered
├── FallbackConfigError (ValueError)       bad input, at construction
├── FallbackExhausted   (ExceptionGroup)   every target that could be asked failed
└── StreamInterrupted                      a stream broke after content had been handed out
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from honcho_fallback._failure import Failure
    from honcho_fallback._record import AttemptRecord, CallRecord


class FallbackError(Exception):
    """Stand above every error of this package."""


class FallbackConfigError(FallbackError, ValueError):
    """Refuse bad input, with the field, what was found and the fix in the message."""

    @classmethod
    def about(cls, field: str, found: str, fix: str) -> FallbackConfigError:
        """Say what is wrong with one field.

        Args:
            field: Its name.
            found: What was found there, without secrets.
            fix: What to do, in the imperative.
        """
        return cls(f"{field}: {found}; {fix}")


class FallbackExhausted(FallbackError, ExceptionGroup[Exception]):  # noqa: N818 # the design's word
    """Carry every error of a call that nobody answered.

    The members are the providers' own exceptions, in the order they came; ``__cause__`` is the
    last of them; ``record`` says what was asked, when and with which result.
    """

    def __new__(cls, message: str, exceptions: Sequence[Exception], record: CallRecord) -> Self:
        """Build the group; ``record`` is kept by ``__init__``."""
        del record
        return super().__new__(cls, message, exceptions)

    def __init__(self, message: str, exceptions: Sequence[Exception], record: CallRecord) -> None:
        super().__init__(message, exceptions)
        self.record = record

    @property
    def attempts(self) -> tuple[AttemptRecord, ...]:
        """List the attempts of the call."""
        return self.record.attempts

    def derive(self, excs: Sequence[Exception], /) -> FallbackExhausted:  # type: ignore[override] # the members stay of one type
        """Build the same error over other members, as ``except*`` does."""
        return FallbackExhausted(self.message, excs, self.record)

    def __reduce__(self) -> tuple[Any, ...]:
        return FallbackExhausted, (self.message, list(self.exceptions), self.record)


class DeadlineExceeded(FallbackError, TimeoutError):  # noqa: N818 # the design's word
    """Tell that ``deadline`` ran out while more could have been asked.

    Args:
        message: What happened.
        errors: The providers' own exceptions, in the order they came.
        record: What was asked, when and with which result.
    """

    def __init__(self, message: str, errors: Sequence[Exception], record: CallRecord) -> None:
        super().__init__(message)
        self.errors = tuple(errors)
        self.record = record

    def __reduce__(self) -> tuple[Any, ...]:
        return DeadlineExceeded, (str(self), self.errors, self.record)


class StreamInterrupted(FallbackError):  # noqa: N818 # the design's word
    """Tell that a stream broke after content had been handed out, so nobody else was asked.

    Args:
        message: What happened.
        partial: The chunks that were handed out, in order.
        record: What was asked, when and with which result.
    """

    def __init__(self, message: str, partial: tuple[Any, ...], record: CallRecord) -> None:
        super().__init__(message)
        self.partial = partial
        self.record = record

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamInterrupted, (str(self), self.partial, self.record)


class AnswerRejected(FallbackError):  # noqa: N818 # in line with the others
    """Stand for an answer that is not usable: it failed under HTTP 200, or ``validate`` said no.

    Args:
        why: What ``check_response`` returned, which then is what ``classify`` says; or a sentence.
    """

    def __init__(self, why: Failure | str) -> None:
        super().__init__(why if isinstance(why, str) else why.reason)
        self.failure = None if isinstance(why, str) else why
