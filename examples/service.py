"""A service that its operators can see into: records, metrics, traces and log lines of its calls.

Run:     python examples/service.py  (POST /chat and GET /metrics on PORT, 8000 by default)
Install: pip install 'honcho-fallback[langfuse,prometheus,providers]' fastapi uvicorn
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI, HTTPException, Response
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, SecretStr

from endpoints import endpoints
from honcho_fallback import FallbackConfig, FallbackExhausted, set_observers
from honcho_fallback.records import JsonlObserver
from honcho_fallback_langchain import FallbackChatModel
from honcho_fallback_langfuse import LangfuseCallbackHandler
from honcho_fallback_prometheus import PrometheusObserver

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Question(BaseModel):
    """Hold what a client sends: what it asks, and for whom."""

    text: str
    workspace: str = "none"


@asynccontextmanager
async def observed(_: FastAPI) -> AsyncGenerator[None, None]:
    """Observe every call of the process, whatever makes it; write out what is left at the end."""
    records = JsonlObserver(os.environ.get("RECORDS", "calls.jsonl"))
    langfuse = LangfuseCallbackHandler()  # does nothing without the keys LANGFUSE_*
    set_observers([records, PrometheusObserver(), langfuse])
    yield
    await asyncio.to_thread(langfuse.close, timeout=10)
    await asyncio.to_thread(records.close)


def build_app(model: FallbackChatModel) -> FastAPI:
    """Serve one model."""
    app = FastAPI(lifespan=observed)

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    @app.post("/chat")
    async def chat(question: Question) -> dict[str, Any]:
        metadata = {"workspace": question.workspace}  # stands in records and traces
        try:
            answer = await model.ainvoke(question.text, {"metadata": metadata})
        except FallbackExhausted as error:
            raise HTTPException(503, f"no model answered call {error.record.call_id}") from None
        return {"text": answer.text, "fallback": answer.response_metadata["fallback"]}

    return app


if __name__ == "__main__":
    with endpoints() as (first, second):
        key, other_key = SecretStr(first.api_key), SecretStr(second.api_key)
        model = FallbackChatModel(
            ChatOpenAI(model=first.model, base_url=first.base_url, api_key=key),
            ChatAnthropic(model=second.model, base_url=second.base_url, api_key=other_key),
            agent="chat",
            fallback_config=FallbackConfig.resilient(reset="iteration", timeout=30),
        )
        uvicorn.run(build_app(model), port=int(os.environ.get("PORT", "8000")))
