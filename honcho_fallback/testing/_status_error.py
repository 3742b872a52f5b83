"""An HTTP error as SDKs raise it, without an SDK."""

from __future__ import annotations

from types import SimpleNamespace


class StatusError(Exception):
    """Stand for an SDK's error, with the facts that ``classify`` reads.

    Args:
        status: HTTP status.
        retry_after: Seconds for the Retry-After header, or None.
        code: The provider's error code in the body, or None.

    Attributes:
        status_code: The status.
        response: What carries the headers.
        body: As JSON, or None.
    """

    def __init__(
        self, status: int, *, retry_after: float | None = None, code: str | None = None
    ) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status
        headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
        self.response = SimpleNamespace(status_code=status, headers=headers)
        self.body = None if code is None else {"error": {"code": code, "message": "scripted"}}
