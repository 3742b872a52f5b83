"""Errors of real SDKs cross the border of a process inside ours."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

import anthropic
import botocore.exceptions
import httpx
import openai
import pytest
from google.genai import errors as google

from honcho_fallback import FallbackConfig, FallbackExhausted, FallbackPolicy, Target, classify

if TYPE_CHECKING:
    from honcho_fallback import Attempt

# Of no type: each SDK has its own class of requests.
REQUEST: Any = httpx.Request("POST", "https://api.example.com/v1", headers={"x-api-key": "secret"})
BODY = {"error": {"message": "over", "type": "overloaded_error", "status": "UNAVAILABLE"}}


def response(**headers: str) -> Any:
    return httpx.Response(503, request=REQUEST, json=BODY, headers=headers)


MAKE: dict[str, Any] = {
    "openai": lambda: openai.InternalServerError("over", response=response(), body=BODY),
    "openai's connection": lambda: openai.APIConnectionError(request=REQUEST),
    "openai's timeout": lambda: openai.APITimeoutError(request=REQUEST),
    "openai, not to be retried": lambda: openai.InternalServerError(
        "over", response=response(**{"x-should-retry": "false"}), body=BODY
    ),
    "anthropic": lambda: anthropic.InternalServerError("over", response=response(), body=BODY),
    "httpx": lambda: httpx.HTTPStatusError("over", request=REQUEST, response=response()),
    "google": partial(google.ServerError, 503, BODY),
    "botocore": lambda: botocore.exceptions.ClientError(
        {
            "Error": {"Code": "ThrottlingException", "Message": "slow down"},
            "ResponseMetadata": {"HTTPStatusCode": 429},
        },
        "Converse",
    ),
}


@pytest.mark.parametrize("name", MAKE)
def test_an_sdks_error_survives_in_ours(name: str) -> None:
    """It is itself or stands for itself, with a meaning that has not changed."""

    def ask(_: Attempt) -> str:
        error = MAKE[name]()
        raise error from httpx.ConnectError("refused", request=REQUEST)

    with pytest.raises(FallbackExhausted) as exhausted:
        FallbackPolicy([Target("a"), Target("b")], FallbackConfig(wait=0)).call(ask)
    through_pickle = pickle.loads(pickle.dumps(exhausted.value))  # noqa: S301 # our own bytes
    for copied in (copy.deepcopy(exhausted.value), through_pickle):
        assert copied.record == exhausted.value.record
        for error, attempt in zip(copied.exceptions, copied.record.attempts, strict=True):
            failure = classify(error)
            assert (failure.kind, failure.status) == (attempt.kind, attempt.status)
            assert failure.transient == attempt.transient
            assert "secret" not in str(error)
