"""What is known of a failed response, and an exception that carries it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback import FallbackConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Response(NamedTuple):
    """Hold what is known of a failed response, where SDKs' responses have it."""

    status_code: int | None
    headers: dict[str, str]
    body: Any


class ProviderError(Exception):
    """Carry the facts where SDKs carry them.

    Args:
        response: What is known of the response.
    """

    def __init__(self, response: Response) -> None:
        body = response.body
        super().__init__(body if isinstance(body, str) else json.dumps(body) if body else "")
        self.status_code, self.body, self.response = response.status_code, body, response


def read_response(status: int | None, body: str | None, header: Sequence[str]) -> Response:
    """Read the facts from the options; a body of ``-`` is standard input."""
    if status is None and body is None and not header:
        fix = "give --status, --body or --header"
        raise FallbackConfigError.about("explain", "no facts", fix)
    headers: dict[str, str] = {}
    for line in header:
        name, colon, value = line.partition(":")
        if not (colon and name.strip()):
            problem, fix = f"{line!r} is no header", "write it as 'name: value'"
            raise FallbackConfigError.about("--header", problem, fix)
        headers[name.strip().lower()] = value.strip()
    text = sys.stdin.read() if body == "-" else body
    # A gateway's error page is the body as it is; JSON that a shell has spoilt is a mistake.
    if text is None or text.lstrip().startswith("<"):
        return Response(status, headers, text)
    try:
        return Response(status, headers, json.loads(text))
    except ValueError as error:
        fix = "quote it for your shell, or pass - and the body on standard input"
        raise FallbackConfigError.about("--body", f"no JSON ({error})", fix) from None
