"""Errors with a key and a prompt wherever a provider may write, and calls with them."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackConfig, FallbackPolicy, Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from honcho_fallback import FallbackObserver, FallbackRun

KEY = "sk-proj-cAnArY0fAk3y4T3sts9xQw7Zr2Lm"
PROMPT = "my diagnosis is xanthelasma"
TEXTS = (PROMPT, KEY, f"{PROMPT} (key {KEY})", f"Bearer {KEY}", KEY[3:])
_PARTS = ("cAnArY", "diagnosis", "xanthelasma")

FIELDS = ("code", "type", "param", "message", "status", "reason", "detail", "request_id")


def canaries_in(text: object) -> list[str]:
    """Return the parts of the key and the prompt that a text shows."""
    return [part for part in _PARTS if part.lower() in str(text).lower()]


class ProviderError(Exception):
    """What an SDK raises; as many, it does not come back from a pickle."""

    def __init__(self, message: str, *, status: int, body: Any, headers: dict[str, str]) -> None:
        super().__init__(message, body)
        self.status_code, self.body = status, body
        self.headers = headers
        self.code = body.get("code") if isinstance(body, dict) else None


def documents(text: str) -> Iterator[Any]:
    """Yield error documents in the shapes of providers, with a text in one of their fields."""
    for field in FIELDS:
        flat = {"message": "it failed", "type": "invalid_request_error", field: text}
        yield {"error": flat}
        yield flat
        yield {"type": "error", "error": flat}
        yield {"error": {"code": 429, "details": [{"reason": text, "metadata": flat}]}}
    yield {"error": text}
    yield {"errors": [{"code": text, "message": text}]}
    yield {"detail": [{"type": text, "loc": ["body", text], "msg": text, "input": text}]}
    yield {"base_resp": {"status_code": 1004, "status_msg": text}}
    yield text


def provider_errors() -> Iterator[ProviderError]:
    """Yield every error: each text, in each field, under statuses that mean something else."""
    for text, status in product(TEXTS, (400, 401, 429, 503)):
        headers = {"retry-after": text, "x-request-id": text, "authorization": text}
        for body in documents(text):
            yield ProviderError(text, status=status, body=body, headers=headers)
    text = " ".join(TEXTS)
    error = ProviderError(text, status=429, body={"error": {"code": text}}, headers={text: text})
    error.__cause__ = ValueError(text, {"code": text})
    error.__context__ = KeyError(text)
    error.add_note(text)
    yield error


def run_into(
    errors: Iterable[Exception], observers: Iterable[FallbackObserver] = ()
) -> Iterator[tuple[FallbackRun, BaseException | None]]:
    """Make calls that fail with each error in each way that a call can end.

    Yields:
        The run, and what it raised.
    """
    pair = [Target("one", "openai"), Target("two", "anthropic")]
    both = FallbackPolicy(pair, FallbackConfig(wait=0, max_attempts=2), observers=[*observers])
    alone = FallbackPolicy(
        pair[:1], FallbackConfig(wait=0, max_attempts=1), observers=[*observers]
    )
    for error in errors:
        for policy, answers, is_cut in product((both, alone), (True, False), (True, False)):
            run, raised = policy.start(), None
            if is_cut:
                run.commit(partial=["once"])
            try:
                while run.outcome == "running":
                    run.fail(error)
                    if answers:
                        run.succeed()
            except Exception as caught:  # noqa: BLE001 # whatever the caller gets
                raised = caught
            yield run, raised
            with suppress(RuntimeError):
                run.cancel()
