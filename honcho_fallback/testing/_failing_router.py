"""A LiteLLM deployment that fails on schedule, on a Router that stays as it is."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from honcho_fallback import FallbackConfigError
from honcho_fallback.testing._need import need

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from honcho_fallback.testing._failing import Failing
    from honcho_fallback.testing._wire import Fault


def is_router(subject: object) -> bool:
    """Tell LiteLLM's Routers, without importing LiteLLM."""
    return any(
        base.__name__ == "Router" and base.__module__.startswith("litellm.")
        for base in type(subject).__mro__
    )


@contextmanager
def failing_deployment(
    router: Any, deployment: str, failing: Failing[Any]
) -> Generator[None, None, None]:
    """Fail the requests that a Router sends to a deployment, until the ``with`` block ends.

    Routers ask by ``litellm.completion`` and ``litellm.acompletion``; these are replaced, and tell
    LiteLLM by its own ``mock_response`` what to take for the provider's error. So its mapping of
    errors, its callbacks, cooldowns and retries are the real ones. Other endpoints than chat, and
    streams that have begun, do not fail.
    """
    litellm = need("litellm", "litellm")
    ids = _ids(router, deployment)
    completion, acompletion = litellm.completion, litellm.acompletion

    def faulty(kwargs: dict[str, Any]) -> dict[str, Any]:
        fault = failing.next() if _id_in(kwargs) in ids else None
        return kwargs if fault is None else {**kwargs, "mock_response": _mapped(litellm, fault)}

    def complete(*args: Any, **kwargs: Any) -> Any:
        return completion(*args, **faulty(kwargs))

    async def acomplete(*args: Any, **kwargs: Any) -> Any:
        return await acompletion(*args, **faulty(kwargs))

    with patch.multiple(litellm, completion=complete, acompletion=acomplete):
        yield


def _mapped(litellm: Any, fault: Fault) -> BaseException:
    """Return what LiteLLM's mapping starts from: here it takes the OpenAI SDK's errors only."""
    error = fault.exception("openai")
    if fault.error != "connection":
        return error
    # Its clients give a lost connection the status 500, and keep the truth as the cause.
    mapped: BaseException = litellm.MockException(500, str(error), "openai", "")
    mapped.__cause__ = error
    return mapped


def _ids(router: Any, deployment: str) -> set[str]:
    listed: list[dict[str, Any]] = router.get_model_list() or []
    ids = [(str(one["model_info"]["id"]), str(one["model_name"])) for one in listed]
    matches = {number for number, name in ids if deployment in {number, name}}
    if not matches:
        known = ", ".join(sorted({part for both in ids for part in both}))
        raise FallbackConfigError.about(
            "deployment", f"got {deployment!r}", f"pass a model_name or an id: {known}"
        )
    return matches


def _id_in(kwargs: Mapping[str, Any]) -> str | None:
    info: dict[str, Any] = kwargs.get("model_info") or {}
    return info.get("id")
