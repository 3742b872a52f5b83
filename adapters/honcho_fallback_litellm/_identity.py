"""Who a deployment is to its provider: the same in every process and whatever Router holds it."""

# LiteLLM's objects and dicts have whatever shape they have; what comes out of here is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING

from honcho_fallback import Target
from honcho_fallback.credentials import ApiKey

if TYPE_CHECKING:
    from honcho_fallback_litellm._router import Deployment

_HERE = token_hex(8)


def identity_of(deployment: Deployment, model: str, provider: str | None) -> str:
    """Return what a shared cooldown knows a deployment by: a hash, also of its key.

    Where its address or its key is unknown (a role, a file, an environment variable that only
    LiteLLM reads) it is known in this process alone, by all of its parameters.
    """
    params = deployment["litellm_params"]
    endpoint = params.get("api_base") or params.get("base_url")
    key = params.get("api_key")
    if provider and endpoint and key and isinstance(endpoint, str) and isinstance(key, str):
        organization = params.get("organization")
        held = ApiKey(f"{organization}\0{key}" if organization else key)
        return Target(model, provider=provider, endpoint=endpoint, credential=held).identity
    told = repr((_HERE, sorted(params.items(), key=str)))
    return f"here:{sha256(told.encode()).hexdigest()[:24]}"


def traits_of(deployment: Deployment) -> int:
    """Tell apart what a deployment was and what it is, when the Router is given it anew."""
    window = (deployment.get("model_info") or {}).get("max_input_tokens")
    told = [one for one in deployment["litellm_params"].values() if isinstance(one, str)]
    return hash((window, *told))
