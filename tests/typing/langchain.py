"""What type checkers must make of plain code over the LangChain adapter; checked, never run."""

from __future__ import annotations

from contextlib import aclosing, closing
from typing import TYPE_CHECKING, assert_type

from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType] # LangGraph's own
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from honcho_fallback_langchain import FallbackChatModel, FallbackMiddleware, FallbackRunnable

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


class Person(BaseModel):
    name: str


def add(first: int, second: int) -> int:
    return first + second


def length(text: str) -> int:
    return len(text)


primary, fallback = ChatOpenAI(model="one"), ChatOpenAI(model="two")
model = FallbackChatModel(primary, fallback, timeout=20, reset="turn")
lengths = FallbackRunnable(RunnableLambda(length), RunnableLambda(length), timeout=20)
prompt = ChatPromptTemplate.from_messages([("human", "{question}")])
is_chat_model: BaseChatModel = model

FallbackChatModel(
    primary,
    fallback,
    name="chat",
    tags=["a"],
    metadata={"team": "b"},
    callbacks=[],
    verbose=False,
    profile={"max_input_tokens": 8192},
)
FallbackRunnable(RunnableLambda(length), name="lengths", agent="typed")
FallbackMiddleware(fallback, exceptions_to_handle=(Exception,), credentials=[None, None])

FallbackChatModel(primary, patience=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue] # no such option
FallbackChatModel(primary, temperature=0)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue] # a candidate's
FallbackChatModel(primary, reset="never")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # no such literal
FallbackChatModel(primary, tags="a")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # a list
FallbackChatModel(length)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # no runnable
FallbackRunnable(RunnableLambda(length), tags=["a"])  # type: ignore[call-arg] # pyright: ignore[reportCallIssue] # with_config has them
FallbackMiddleware(fallback, patience=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue] # no such option
FallbackMiddleware(fallback, exceptions_to_handle=ValueError)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # a tuple
FallbackMiddleware(3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # neither a model nor a name
model.no_such_thing  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue] # noqa: B018 # delegation is no excuse
model.invoke(3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # no chat model's input
model.with_fallback_config(patience=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue] # no such option
lengths.invoke(3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # it takes a string


def a_model_answers() -> None:
    assert_type(model.invoke("hi"), AIMessage)
    assert_type(model.invoke([HumanMessage("hi")], {"tags": ["one"]}, stop=["."]), AIMessage)
    assert_type(model.batch(["hi", "ho"]), list[AIMessage])
    with closing(model.stream("hi")) as chunks:
        assert_type(next(chunks), AIMessageChunk)


async def a_model_answers_in_a_task() -> None:
    assert_type(await model.ainvoke("hi"), AIMessage)
    assert_type(await model.abatch(["hi", "ho"]), list[AIMessage])
    async with aclosing(model.astream("hi")) as chunks:
        assert_type(await anext(chunks), AIMessageChunk)


def what_is_derived_from_a_model() -> None:
    assert_type(model.with_fallback_config(reset="iteration"), FallbackChatModel)
    assert_type(model.bind(stop=["."]).with_fallback_config(timeout=3).invoke("hi"), AIMessage)
    assert_type(model.with_config(tags=["one"]).invoke("hi"), AIMessage)
    assert_type(model.bind_tools([add]).invoke("hi"), AIMessage)
    structured = model.with_structured_output(Person).with_fallback_config(timeout=3)
    person: Person = structured.invoke("hi")
    assert_type(person.name, str)
    with model.turn():
        assert_type(model.invoke("hi"), AIMessage)


def chains() -> None:
    texts = prompt | model | StrOutputParser()
    assert_type((prompt | model).invoke({"question": "hi"}), AIMessage)
    assert_type((prompt | model.bind_tools([add])).invoke({"question": "hi"}), AIMessage)
    assert_type(texts.invoke({"question": "hi"}), str)
    assert_type(FallbackRunnable(texts, texts).invoke({"question": "hi"}), str)


async def any_runnable() -> None:
    assert_type(lengths.invoke("hi"), int)
    assert_type(await lengths.ainvoke("hi"), int)
    assert_type(lengths.batch(["hi"]), list[int])
    assert_type(
        lengths.with_fallback_config(timeout=3).with_config(tags=["one"]).invoke("hi"), int
    )
    for chunk in lengths.stream("hi"):
        assert_type(chunk, int)
    async for chunk in lengths.astream("hi"):
        assert_type(chunk, int)


def agents() -> None:
    middleware = FallbackMiddleware(fallback, "openai:three", reset="turn", timeout=20)
    create_agent(primary, [add], middleware=[middleware])
    create_agent(model, [add], middleware=[middleware.with_fallback_config(timeout=3)])
