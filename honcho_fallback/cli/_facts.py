"""What is known of a failed response, and an exception that carries it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from honcho_fallback import FallbackConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


class FactsError(ValueError):
    """Refuse facts that no response could have."""


class Facts(BaseModel):
    """Hold what is known of a failed response.

    Args:
        status: HTTP status.
        body: The body, parsed.
        headers: The headers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: int | None = Field(default=None, ge=100, le=599)
    body: Any = None
    headers: dict[str, str | int | float] = Field(default_factory=dict)


class _Response(NamedTuple):
    status_code: int | None
    headers: dict[str, str]


class ProviderError(Exception):
    """Carry the facts where SDKs carry them.

    Args:
        facts: What is known of the response.
    """

    def __init__(self, facts: Facts) -> None:
        body = facts.body
        super().__init__(
            body if isinstance(body, str) else "" if body is None else json.dumps(body)
        )
        headers = {name.lower(): str(value) for name, value in facts.headers.items()}
        self.status_code = facts.status
        self.body = facts.body
        self.response = _Response(facts.status, headers)


def read_facts(
    source: str | None, status: int | None, body: str | None, header: Sequence[str]
) -> Facts:
    """Read the facts from standard input or from the options, not from both."""
    values = {"status": status, "body": body, "header": header or None}
    options = [f"--{name}" for name, value in values.items() if value is not None]
    if source is not None:
        if source != "-":
            raise FactsError(f"{source!r}: the only argument is -, for standard input")
        if options:
            raise FactsError(f"- and {options[0]} exclude each other")
        return _checked(_parsed("standard input", sys.stdin.read()))
    if not options:
        raise FactsError("no facts: give --status, --body or --header, or - for stdin")
    headers: dict[str, str] = {}
    for line in header:
        name, colon, value = line.partition(":")
        if not (colon and name.strip()):
            raise FactsError(f"--header: {line!r} is not 'name: value'")
        headers[name.strip()] = value.strip()
    return _checked({"status": status, "body": _body(body), "headers": headers})


def _body(text: str | None) -> Any:
    # A gateway's error page is the body as it is; JSON that a shell has spoilt is a mistake.
    if text is None or text.lstrip().startswith("<"):
        return text
    return _parsed("--body", text)


def _parsed(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise FactsError(f"{where}: not JSON: {error}") from error


def _checked(raw: Any) -> Facts:
    try:
        return Facts.model_validate(raw)
    except ValidationError as error:
        raise FactsError(str(FallbackConfigError.invalid(error, "facts"))) from error
