"""LangChain's chat models with this package's fallbacks and with LangChain's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.output_parsers import StrOutputParser
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from failover.subject import KEY, PROMPT, Place, Ready, Subject
from honcho_fallback_langchain import FallbackChatModel, with_fallback_config

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.runnables import Runnable


def _models(place: Place, **options: Any) -> tuple[ChatOpenAI, ChatOpenAI]:
    key = SecretStr(KEY)
    primary = ChatOpenAI(model="a", base_url=place.primary, api_key=key, **place.limit, **options)
    return primary, ChatOpenAI(model="b", base_url=place.backup, api_key=key, **options)


# Typed as what a program would hand on: a chat model, a runnable.
def _ours(place: Place) -> BaseChatModel:
    return FallbackChatModel(*_models(place))


def _ours_sync(place: Place) -> Ready:
    model = _ours(place)
    return Ready(lambda: model.invoke(PROMPT), sync=True)


def _ours_async(place: Place) -> Ready:
    model = _ours(place)
    return Ready(lambda: model.ainvoke(PROMPT))


def _chain(place: Place) -> Runnable[Any, Any]:
    primary, backup = _models(place)
    return with_fallback_config(primary | StrOutputParser(), [backup | StrOutputParser()])


def _ours_chain(place: Place) -> Ready:
    chain = _chain(place)
    return Ready(lambda: chain.ainvoke(PROMPT))


def _own(place: Place, **options: Any) -> Ready:
    primary, backup = _models(place, **options)
    chain = primary.with_fallbacks([backup])
    return Ready(lambda: chain.ainvoke(PROMPT))


SUBJECTS = (
    Subject("LangChain, `FallbackChatModel.ainvoke`", _ours_async, ours=True),
    Subject("LangChain, `FallbackChatModel.invoke`", _ours_sync, ours=True),
    Subject("LangChain, `with_fallback_config` of two chains", _ours_chain, ours=True),
    Subject("LangChain `with_fallbacks`, defaults", _own),
    Subject("LangChain `with_fallbacks`, max_retries=0", lambda place: _own(place, max_retries=0)),
)
