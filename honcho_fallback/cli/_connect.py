"""How the core's targets are spoken to: over the providers' own SDKs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import openai

from honcho_fallback import Target
from honcho_fallback.cli._need import need_sdk
from honcho_fallback.cli._speakers import OpenAISpeaker

if TYPE_CHECKING:
    from contextlib import ExitStack

    from honcho_fallback.cli._played import Endpoint
    from honcho_fallback.cli._speakers import Speaker


def connect(endpoint: Endpoint, stack: ExitStack) -> Target:
    """Make a target whose client is a speaker."""
    return Target(
        endpoint.model,
        provider=endpoint.provider,
        name=endpoint.name,
        client=_SPEAKERS[endpoint.wire](endpoint, stack),
        params=endpoint.params,
    )


def _openai(endpoint: Endpoint, stack: ExitStack) -> Speaker:
    if endpoint.base_url is None:
        return OpenAISpeaker(stack.enter_context(openai.OpenAI(max_retries=0)))
    # A proxy from the environment has no business between us and our own servers.
    transport = stack.enter_context(openai.DefaultHttpxClient(trust_env=False))
    return OpenAISpeaker(
        openai.OpenAI(
            base_url=endpoint.base_url, api_key="not-needed", max_retries=0, http_client=transport
        )
    )


def _anthropic(_: Endpoint, stack: ExitStack) -> Speaker:
    need_sdk("anthropic")
    import anthropic  # noqa: PLC0415 # costs a second, and only few demos ask it

    from honcho_fallback.cli._speakers_anthropic import AnthropicSpeaker  # noqa: PLC0415 # as above

    return AnthropicSpeaker(stack.enter_context(anthropic.Anthropic(max_retries=0)))


_SPEAKERS = {"openai": _openai, "anthropic": _anthropic}
