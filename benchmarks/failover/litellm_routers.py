"""LiteLLM's Router with this package's strategy and with LiteLLM's own fallbacks."""

# LiteLLM's objects and dicts have whatever shape they have; this is no part of the package.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import logging
import os
import uuid
from typing import Any

from failover.subject import KEY, MESSAGES, Place, Ready, Subject

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # after the variable that it reads
from litellm import Router  # as above

from honcho_fallback_litellm import FallbackRoutingStrategy  # as above

litellm.suppress_debug_info = True
logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
logging.getLogger("LiteLLM Router").setLevel(logging.CRITICAL)


# A model that LiteLLM has a price for; after others it looks for the reason, which takes its time.
_KNOWN = {"model": "openai/gpt-4o-mini"}


def _models(place: Place, *, ranked: bool) -> list[dict[str, Any]]:
    urls: tuple[tuple[str, dict[str, Any]], ...] = (
        (place.primary, place.limit),
        (place.backup, {}),
    )
    return [
        {
            "model_name": "group" if ranked or rank == 0 else "backup",
            "litellm_params": {**_KNOWN, "api_key": KEY, "api_base": url, **limit},
            # LiteLLM shares cooldowns between Routers by this id.
            "model_info": {"id": uuid.uuid4().hex, **({"fallback_rank": rank} if ranked else {})},
        }
        for rank, (url, limit) in enumerate(urls)
    ]


def _ready(router: Router, *, sync: bool = False) -> Ready:
    def rest() -> None:
        """Forget cooldowns: after one 401 LiteLLM asks the primary no more for a while."""
        router.cooldown_cache.in_memory_cache.flush_cache()
        router.cache.flush_cache()

    if sync:
        return Ready(lambda: router.completion(model="group", messages=MESSAGES), rest, sync=True)
    return Ready(lambda: router.acompletion(model="group", messages=MESSAGES), rest)


def _ours(place: Place, *, sync: bool = False) -> Ready:
    router = Router(model_list=_models(place, ranked=True))
    FallbackRoutingStrategy().register(router)
    return _ready(router, sync=sync)


def _own(place: Place, **options: Any) -> Ready:
    fallbacks = [{"group": ["backup"]}]
    return _ready(Router(model_list=_models(place, ranked=False), fallbacks=fallbacks, **options))


SUBJECTS = (
    Subject("LiteLLM, `FallbackRoutingStrategy`, `acompletion`", _ours, ours=True),
    Subject(
        "LiteLLM, `FallbackRoutingStrategy`, `completion`",
        lambda place: _ours(place, sync=True),
        ours=True,
    ),
    Subject("LiteLLM Router `fallbacks`, defaults", _own),
    Subject("LiteLLM Router `fallbacks`, num_retries=0", lambda place: _own(place, num_retries=0)),
)
