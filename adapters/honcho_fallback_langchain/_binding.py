"""What ``bind`` and ``with_config`` return: a binding that can still be configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

from langchain_core.runnables import RunnableBinding
from langchain_core.runnables.utils import Input, Output

if TYPE_CHECKING:
    from typing import Unpack

    from honcho_fallback_langchain._chat_model import FallbackChatModel
    from honcho_fallback_langchain._options import FallbackOptions
    from honcho_fallback_langchain._runnable import FallbackRunnable


class FallbackBinding(RunnableBinding[Input, Output]):  # type: ignore[no-redef] # its fields are redefined for the type arguments
    """Hold what was bound to a FallbackChatModel or a FallbackRunnable."""

    @classmethod
    def lc_id(cls) -> list[str]:
        """Serialize as what it is to everybody else, a RunnableBinding."""
        return [*cls.get_lc_namespace(), "RunnableBinding"]

    def with_fallback_config(self, **options: Unpack[FallbackOptions]) -> Self:
        """Return a copy with other options; what is bound stays."""
        bound = cast("FallbackChatModel | FallbackRunnable[Any, Any]", self.bound)
        return self.model_copy(update={"bound": bound.with_fallback_config(**options)})
