"""What a chat model is built from, and how little of it is shown."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from langchain_core.language_models import BaseChatModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from honcho_fallback import Credential
    from honcho_fallback_honcho._endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """Hold what a chat model is built from.

    Args:
        name: The model's name at its provider.
        endpoint: Where it is.
        key: What it is asked with.
        params: Its parameters under Honcho's names, without those that its wire lacks.
        missing: Stands for a key that is missing, and refuses.
    """

    name: str
    endpoint: Endpoint
    key: str = field(repr=False)
    params: Mapping[str, Any] = field(repr=False)
    missing: Credential | None = None

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
