"""A chat model whose key is missing: it fails as its target does, and asks nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from pydantic import Field

if TYPE_CHECKING:
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.language_models.base import LangSmithParams
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.outputs import ChatResult
    from langchain_core.runnables import Runnable


class KeylessChatModel(BaseChatModel):
    """Refuse each call as a failed authentication.

    Args:
        model: The model's name.
        provider: Its provider's name.
        credential: Raises the refusal, which says what is missing.
    """

    model: str
    provider: str
    credential: Any = Field(repr=False, exclude=True)

    @property
    def _llm_type(self) -> str:
        return "honcho-without-key"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools that nobody will call.

        Args:
            tools: As for a chat model.
            **kwargs: As there.
        """
        return self.bind(tools=tools, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],  # noqa: ARG002 # LangChain's
        stop: list[str] | None = None,  # noqa: ARG002 # as above
        run_manager: Any = None,  # noqa: ARG002 # as above
        **kwargs: Any,  # noqa: ARG002 # as above
    ) -> ChatResult:
        return self.credential.get()  # type: ignore[no-any-return] # it raises

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        return {**params, "ls_provider": self.provider, "ls_model_name": self.model}
