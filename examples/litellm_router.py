"""One model group of a LiteLLM Router as a chain, in the order of fallback_rank.

Run:     python examples/litellm_router.py  (OPENAI_API_KEY, ANTHROPIC_API_KEY ask the real ones)
Install: pip install 'honcho-fallback[litellm]'
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or LiteLLM fetches a price list

from litellm import Router

from endpoints import endpoints
from honcho_fallback_litellm import FallbackRoutingStrategy

if TYPE_CHECKING:
    from endpoints import Endpoint


def deployment(provider: Endpoint, rank: int) -> dict[str, Any]:
    """Describe one member of the group; rank 0 is the primary, 1 the first fallback."""
    return {
        "model_name": "greeter",
        "litellm_params": {
            "model": f"{provider.name}/{provider.model}",
            "api_base": provider.base_url,
            "api_key": provider.api_key,
        },
        "model_info": {"id": provider.name, "fallback_rank": rank},
    }


def main() -> None:
    """Ask the group; LiteLLM's own answer says who gave it."""
    with endpoints() as (primary, fallback):
        router = Router(model_list=[deployment(primary, 0), deployment(fallback, 1)])
        FallbackRoutingStrategy().register(router)

        messages = [{"role": "user", "content": "Say good morning."}]
        answer: Any = router.completion(model="greeter", messages=messages)
        print(answer.choices[0].message.content)
        record = answer._hidden_params["fallback"]
        print(f"{record['answered_by']} answered after {len(record['attempts'])} attempts")


if __name__ == "__main__":
    main()
