"""Who a deployment is to its provider: the same in every process and whatever Router holds it."""

# LiteLLM's objects and dicts have whatever shape they have; what comes out of here is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING

from honcho_fallback import ApiKey, Target

if TYPE_CHECKING:
    from honcho_fallback_litellm._router import Deployment

_HERE = token_hex(8)


def identity_of(deployment: Deployment, model: str, provider: str | None) -> str:
    """Return a deployment's identity in a shared cooldown: a hash, also of its key.

    A deployment without a readable address or key (a role, a file, an environment variable that
    only LiteLLM reads) gets an identity of this process alone, from all of its parameters.
    """
    params = deployment["litellm_params"]
    endpoint = params.get("api_base") or params.get("base_url")
    key = params.get("api_key")
    if provider and endpoint and key and isinstance(endpoint, str) and isinstance(key, str):
        organization = params.get("organization")
        credential = ApiKey(f"{organization}\0{key}" if organization else key)
        return Target(model, provider=provider, endpoint=endpoint, credential=credential).identity
    text = repr((_HERE, sorted(params.items(), key=str)))
    return f"here:{sha256(text.encode()).hexdigest()[:24]}"


def traits_of(deployment: Deployment) -> int:
    """Return a hash that changes when the Router replaces the deployment under its id."""
    window = (deployment.get("model_info") or {}).get("max_input_tokens")
    texts = [value for value in deployment["litellm_params"].values() if isinstance(value, str)]
    return hash((window, *texts))
