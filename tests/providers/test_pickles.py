"""Errors of real SDKs cross the border of a process inside ours."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import anthropic
import botocore.exceptions
import httpx
import openai
import pytest
from google.genai import errors as google

from honcho_fallback import FallbackConfig, FallbackExhausted, FallbackPolicy, Target, classify

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback import Attempt

REQUEST = httpx.Request("POST", "https://api.example.com/v1", headers={"x-api-key": "secret"})
BODY = {"error": {"message": "over", "type": "overloaded_error", "status": "UNAVAILABLE"}}


def response() -> Any:
    return httpx.Response(503, request=REQUEST, json=BODY)


MAKE: dict[str, Callable[[], Exception]] = {
    "openai": lambda: openai.InternalServerError("over", response=response(), body=BODY),
    "openai's connection": lambda: openai.APIConnectionError(request=REQUEST),  # type: ignore[arg-type] # openai's own httpx
    "openai's timeout": lambda: openai.APITimeoutError(request=REQUEST),  # type: ignore[arg-type] # as above
    "anthropic": lambda: anthropic.InternalServerError("over", response=response(), body=BODY),
    "httpx": lambda: httpx.HTTPStatusError("over", request=REQUEST, response=response()),
    "google": lambda: google.ServerError(503, BODY),
    "botocore": lambda: botocore.exceptions.ClientError(
        {
            "Error": {"Code": "ThrottlingException", "Message": "slow down"},
            "ResponseMetadata": {"HTTPStatusCode": 429},  # type: ignore[typeddict-item] # as much as counts
        },
        "Converse",
    ),
}


@pytest.mark.parametrize("name", MAKE)
def test_an_sdks_error_survives_in_ours(name: str) -> None:
    """It is itself or stands for itself, with a meaning that has not changed."""

    def ask(_: Attempt) -> str:
        raise MAKE[name]() from httpx.ConnectError("refused", request=REQUEST)

    with pytest.raises(FallbackExhausted) as exhausted:
        FallbackPolicy([Target("a"), Target("b")], FallbackConfig(wait=0)).call(ask)
    for again in (copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):  # noqa: S301 # ours
        copied = again(exhausted.value)
        assert copied.record == exhausted.value.record
        for error, attempt in zip(copied.exceptions, copied.record.attempts, strict=True):
            failure = classify(error)
            assert (failure.kind, failure.status) == (attempt.kind, attempt.status)
            assert "secret" not in str(error)
