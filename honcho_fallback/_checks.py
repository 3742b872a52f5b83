"""Checks of what users pass in, for those who work without a type checker."""

from __future__ import annotations

import math

from honcho_fallback._errors import FallbackConfigError


def require_text(field: str, value: object, fix: str) -> None:
    """Refuse anything but a string with something in it.

    Args:
        field: The argument's name.
        value: What was passed.
        fix: What to do, in the imperative.

    Raises:
        FallbackConfigError: It is not.
    """
    if not isinstance(value, str) or not value.strip():
        found = repr(value) if isinstance(value, str | None) else f"a {type(value).__name__}"
        raise FallbackConfigError.about(field, f"got {found}", fix)


def require_type(field: str, value: object, kind: type, fix: str) -> None:
    """Refuse a value of another type.

    Args:
        field: The argument's name.
        value: What was passed; never shown.
        kind: The type it should have.
        fix: What to do, in the imperative.

    Raises:
        FallbackConfigError: It has another.
    """
    if not isinstance(value, kind):
        raise FallbackConfigError.about(field, f"got a {type(value).__name__}", fix)


def require_number(field: str, value: object, least: float, unit: str = "seconds") -> float:
    """Refuse anything but a finite number that is large enough.

    Args:
        field: The argument's name.
        value: What was passed.
        least: The smallest allowed.
        unit: What is asked for.

    Raises:
        FallbackConfigError: It is not one.
    """
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not least <= number < math.inf:
        raise FallbackConfigError.about(field, f"got {value!r}", f"pass {unit}, {least:g} or more")
    return float(number)
