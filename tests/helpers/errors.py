"""Errors as clients raise them, built from plain facts, and the examples of errors.toml."""

from __future__ import annotations

import asyncio
import errno
import functools
import importlib
import socket
import tomllib
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx
import openai
import pytest
from google.genai import errors as genai

from honcho_fallback import Failure, classify

URL = "https://provider.test/v1/chat/completions"
# Any, because openai and anthropic sit on either of the two httpx lineages.
REQUEST: Any = httpx.Request("POST", URL)
EXAMPLES: dict[str, Any] = tomllib.loads(
    (Path(__file__).parents[1] / "unit" / "errors.toml").read_text("utf-8")
)


class ProviderError(Exception):
    """An in-house client's error: whatever it is given becomes an attribute."""

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)


@functools.cache
def _client(sdk: Any) -> Any:
    return sdk(api_key="x", base_url=URL)


def openai_error(status: int, error: Any, sdk: Any = openai.OpenAI, **headers: str) -> Exception:
    """Return what an SDK raises for an answer; an underscore in a header is a dash."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer: Any = httpx.Response(status, json={"error": error}, headers=named, request=REQUEST)
    made: Exception = _client(sdk)._make_status_error_from_response(answer)
    return made


def requests_answer(status: int, text: str) -> Any:
    """Return an answer as the library requests holds it, whose content it has read."""
    answer = pytest.importorskip("requests").Response()
    answer.status_code, answer._content = status, text.encode()
    return answer


def stand_in(name: str, module: str, base: type[Exception] = ProviderError) -> type[Any]:
    """Make a class as a package has it, whether that is installed here or not."""
    return type(name, (base,), {"__module__": module})


def raised_from(outer: Exception, cause: BaseException) -> Exception:
    outer.__cause__ = cause
    return outer


def classified_in_a_task(error: BaseException) -> Failure:
    """Classify where a client of this process may be stale: under a loop."""

    async def in_task() -> Failure:
        return classify(error)

    return asyncio.run(in_task())


def built(row: dict[str, Any]) -> Any:
    """Build the error of a row, whose keys the head of errors.toml explains."""
    status = row.get("status")
    if "openai" in row:
        return openai_error(status or 400, row["openai"], **row.get("headers", {}))
    if "anthropic" in row:
        return openai_error(status or 400, row["anthropic"], anthropic.Anthropic)
    if "google" in row:
        code: int = status or 400
        kind = genai.ClientError if code < 500 else genai.ServerError
        return kind(code, {"error": {"code": code, **row["google"]}})
    if "group" in row:
        return BaseExceptionGroup("hello", [built(one) for one in row["group"]])
    if "grpc" in row:
        return _of_grpc(**row["grpc"])
    cls = _class_of(row)
    if row.get("derived"):
        cls = stand_in("Mine", "mine", cls)
    args = row.get("args", [] if "named" in row else [row.get("text", "hello")])
    args = [built(one) if isinstance(one, dict) and "real" in one else one for one in args]
    if "errno" in row:
        args = [getattr(errno, row["errno"], None) or getattr(socket, row["errno"]), "hello"]
    error: Exception = cls(*args, **row.get("named", {}))
    given: dict[str, Any] = {name: row[name] for name in row if name in {"body", "headers"}}
    if status is not None:
        given["status_code"] = status
    error.__dict__.update(given | row.get("facts", {}))
    if "context" in row:
        error.__context__ = built(row["context"])
        error.__suppress_context__ = row.get("suppressed", False)
    return raised_from(error, built(row["cause"])) if "cause" in row else error


def _of_grpc(code: str, details: str) -> Exception:
    named = {"code": lambda _: SimpleNamespace(name=code), "details": lambda _: details}
    base = stand_in("RpcError", "grpc", Exception)
    error: Exception = type("_InactiveRpcError", (base,), named)()
    return error


def _class_of(row: dict[str, Any]) -> type[Any]:
    place, _, name = row.get("real", row.get("class", "")).rpartition(".")
    if "real" in row:
        pytest.importorskip(place.partition(".")[0])
        cls: type[Any] = getattr(importlib.import_module(place), name)
        return cls
    if not name:
        return ProviderError
    return stand_in(name, place, ProviderError if place == "some.sdk" else Exception)


def examples() -> dict[str, dict[str, Any]]:
    """Return the rows of all rules by an id, each with what its rule says of all of them."""
    rows: dict[str, dict[str, Any]] = {}
    for rule in EXAMPLES["rule"]:
        common = {name: value for name, value in rule.items() if name not in {"says", "errors"}}
        variants = common.pop("each", [{}])
        for number, (row, variant) in enumerate(product(rule["errors"], variants), 1):
            rows[f"{rule['says']} ({number})"] = common | variant | row
    return rows
