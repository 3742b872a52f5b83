"""A chain of candidates, as its calls see it: what can be known before anybody is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from langchain_core.output_parsers import BaseLLMOutputParser
from langchain_core.runnables.base import RunnableBindingBase, RunnableSequence

from honcho_fallback import FallbackPolicy
from honcho_fallback_langchain._candidates import chat_model_of, first_chat_model, targets_of
from honcho_fallback_langchain._message_history import Reader
from honcho_fallback_langchain._outputs import reading_messages
from honcho_fallback_langchain._sdk import within_attempts, without_sdk_retries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.runnables import Runnable

    from honcho_fallback import Target
    from honcho_fallback_langchain._options import Options


class Link(NamedTuple):
    """Hold what is known of one candidate."""

    model: BaseChatModel | None  # the chat model in it
    # Who reads a history there; None where no provider is known, or a prompt comes first.
    reader: Reader | None
    parses: bool  # whether it is a chain that ends in a parser


@dataclass(frozen=True, slots=True)
class Chain:
    """Hold the policy over some candidates, and what its calls would otherwise ask each time."""

    policy: FallbackPolicy
    options: Options  # of the policy, and what stands beside them
    targets: tuple[Target, ...]  # of the policy, the primary first
    links: tuple[Link, ...] = field(repr=False)  # what is known of each

    @classmethod
    def over(
        cls,
        candidates: Sequence[Runnable[Any, Any]],
        options: Options,
        before: FallbackPolicy | None,
        *,
        replaced: int = 0,
    ) -> Self:
        """Make the chain of candidates, their SDKs' retries off where that is asked for.

        Turns of the policy before go on, and what it learned of the targets that are the same:
        all but the first few that are replaced.
        """
        if options.sdk_retries == "off":
            candidates = [within_attempts(without_sdk_retries(one)) for one in candidates]
        earlier = () if before is None else (*[None] * replaced, *before.targets[replaced:])
        config = options.config
        # A chain may ask a retriever or another service, too; a chat model asks nobody else.
        if all(chat_model_of(one) is not None for one in candidates):
            config = config.replace(only_models=True)
        policy = FallbackPolicy(
            targets_of(candidates, options.credentials, earlier),
            reading_messages(config),
            agent=options.agent,
            observers=options.observers,
            turns_of=before,
        )
        targets = policy.targets
        return cls(policy, options, targets, tuple(_link(one, targets) for one in targets))


def _link(target: Target, targets: tuple[Target, ...]) -> Link:
    part: Any = target.client
    while isinstance(part, RunnableBindingBase):
        part = part.bound
    is_sequence = isinstance(part, RunnableSequence)
    takes_messages = target.provider and first_chat_model(part.first if is_sequence else part)
    reader = Reader.of(target, targets) if takes_messages else None
    parses = is_sequence and isinstance(part.last, BaseLLMOutputParser)
    return Link(chat_model_of(target.client), reader, parses)
