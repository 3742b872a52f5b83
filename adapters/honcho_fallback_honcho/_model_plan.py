"""What a chat model is built from, and how little of it is shown."""

from __future__ import annotations

import os
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from langchain_core.language_models import BaseChatModel
from pydantic import Field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_core.language_models import LanguageModelInput
    from langchain_core.language_models.base import LangSmithParams
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.outputs import ChatResult
    from langchain_core.runnables import Runnable

    from honcho_fallback_honcho._endpoint import Endpoint

CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """Hold what a chat model is built from.

    Args:
        name: The model's name at its provider.
        endpoint: Where it is.
        key: What it is asked with.
        params: Its parameters under Honcho's names, without those that its wire lacks.
    """

    name: str
    endpoint: Endpoint
    key: str = field(repr=False)
    params: Mapping[str, Any] = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """Return what is added to each request's headers."""
        headers = {name: str(value) for name, value in self.endpoint.extra_headers.items()}
        parts = urlsplit(self.endpoint.base_url)
        if parts.username is None and parts.password is None:
            return headers
        # As httpx sends them; inside of an address they would be logged with each request.
        user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        return {"Authorization": f"Basic {b64encode(user.encode()).decode()}", **headers}

    def headers_over(self, variable: str, omitted: Any) -> dict[str, Any]:
        """Return the headers with those of an SDK's own variable taken out.

        Args:
            variable: Its lines are headers that the SDK adds, whatever the address.
            omitted: What the SDK takes for a header that is not sent.
        """
        lines = os.environ.get(variable, "").split("\n")
        stray = {line.partition(":")[0].strip(): omitted for line in lines if ":" in line}
        own = {"Authorization": f"Bearer {self.key}", "X-Api-Key": self.key}
        return stray | {name: own[name] for name in stray.keys() & own.keys()} | self.headers

    def named(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return the parameters that a table has a name for, under that name."""
        return {names[name]: value for name, value in self.params.items() if name in names}


class DiscreetChatModel(BaseChatModel):
    """Show no more of a model than its name: headers and bodies may hold secrets."""

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Refuse: a trace would show what the model was built from."""
        return False

    def __repr_args__(self) -> Any:
        return [("model", self._get_ls_params().get("ls_model_name"))]


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
