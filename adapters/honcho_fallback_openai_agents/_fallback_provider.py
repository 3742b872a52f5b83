"""A provider of models, each with the same fallbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack

from agents import Model, ModelProvider, MultiProvider

from honcho_fallback_openai_agents._model import FallbackModel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from honcho_fallback import ConfigOptions, FallbackConfig, FallbackObserver
    from honcho_fallback_openai_agents._sdk_models import Candidate


class FallbackProvider(ModelProvider):
    """Give every model that an agent names the same fallbacks: ``RunConfig(model_provider=...)``.

    A model that an agent holds as an object is asked as it is: the SDK asks a provider for names.

    Args:
        *fallbacks: Models, names, or ``Target``s whose ``client`` is a model, in order.
        provider: Resolves names, also those of fallbacks; default ``MultiProvider()``.
        config: The options; default ``FallbackConfig()``.
        observers: Objects with the hooks of ``FallbackObserver``, or some of them.
        agent: A label for logs and records.
        partial: As for ``FallbackModel``.
        **options: Options of FallbackConfig, on top of ``config``.
    """

    def __init__(
        self,
        *fallbacks: Candidate,
        provider: ModelProvider | None = None,
        config: FallbackConfig | None = None,
        observers: Iterable[FallbackObserver] = (),
        agent: str | None = None,
        partial: Literal["final", "replace"] = "final",
        **options: Unpack[ConfigOptions],
    ) -> None:
        self._provider = MultiProvider() if provider is None else provider
        self._fallbacks = fallbacks
        more = {"observers": tuple(observers), "agent": agent, "partial": partial, **options}
        self._more: dict[str, Any] = {"config": config, **more}
        # One policy for each name: what was learned of a provider has to outlive a run.
        self._models: dict[str | None, FallbackModel] = {}

    def get_model(self, model_name: str | None) -> Model:
        """Return the chain that begins with a model, or with the provider's default."""
        if model_name not in self._models:
            primary, *fallbacks = (
                self._provider.get_model(one) if one is None or isinstance(one, str) else one
                for one in (model_name, *self._fallbacks)
            )
            self._models[model_name] = FallbackModel(primary, *fallbacks, **self._more)
        return self._models[model_name]

    async def aclose(self) -> None:
        """Close the models, and what resolved their names."""
        for model in self._models.values():
            await model.close()
        await self._provider.aclose()
