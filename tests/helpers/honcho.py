"""Stand-ins with the shapes that Honcho's call path has today; written anew, nothing is copied."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, Field

T = TypeVar("T")


class HonchoLLMCallResponse(BaseModel, Generic[T]):
    """An answer."""

    content: T
    input_tokens: int = 0
    output_tokens: int = 0
    finish_reasons: list[str] = Field(default_factory=list)
    tool_calls_made: list[dict[str, Any]] = Field(default_factory=list)
    thinking_content: str | None = None


class HonchoLLMCallStreamChunk(BaseModel):
    """A chunk of a stream; its last one is done, and brings no content."""

    content: str
    is_done: bool = False
    finish_reasons: list[str] = Field(default_factory=list)
    output_tokens: int | None = None
