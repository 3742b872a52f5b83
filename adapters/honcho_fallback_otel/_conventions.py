"""What the conventions for generative AI ask of spans and metrics alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from honcho_fallback.redaction import label

if TYPE_CHECKING:
    from honcho_fallback import CallRecord

# They require a provider's name; this is their word where none is known.
OTHER = "_OTHER"

# The caller who leaves is no error of the operation.
ERRORS = frozenset({"exhausted", "rejected", "interrupted"})


def error_type(record: CallRecord) -> str | None:
    """Return the class of a call's last error, or None where the operation did not fail."""
    if record.outcome not in ERRORS:
        return None
    last = record.attempts[-1] if record.attempts else None
    return label(last.error or str(last.kind)) if last else record.outcome
