"""What a request says of itself reaches its record; what LiteLLM adds, and secrets, do not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from honcho_fallback import FallbackConfigError
from honcho_fallback_litellm import FallbackProxyHandler, FallbackRoutingStrategy
from honcho_fallback_litellm._request import plain_metadata_of
from tests.helpers.observers import WRONG

MESSAGES: Any = [{"role": "user", "content": "hello"}]


def test_responses_have_metadata_in_two_places(bench: Any, run: Any) -> None:
    """OpenAI's and LiteLLM's own are both the caller's."""
    router, listener = bench.managed()
    both = {"metadata": {"workspace": "acme"}, "litellm_metadata": {"run_id": "r-17"}}
    run(router.aresponses(model="deriver", input="hello", **both))
    assert listener.record.metadata == {"workspace": "acme", "run_id": "r-17"}


_PLAIN = st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.floats())
_OTHER = st.one_of(st.lists(st.text()), st.binary(), st.builds(object))
_BUCKET = st.dictionaries(
    st.one_of(st.text(), st.integers(), st.sampled_from(["user_api_key", "requester_metadata"])),
    st.one_of(_PLAIN, _OTHER, st.dictionaries(st.text(), _PLAIN)),
)


@given(metadata=st.one_of(_BUCKET, _OTHER, st.none()), other=st.one_of(_BUCKET, st.none()))
def test_nothing_but_plain_values_is_taken(metadata: Any, other: Any) -> None:
    """Whatever stands there; and what the Proxy writes beside a key never is."""
    kept = plain_metadata_of({"metadata": metadata, "litellm_metadata": other}) or {}
    for name, value in kept.items():
        assert type(name) is str
        assert not name.startswith("user_api_key")
        assert type(value) in {str, int, float, bool, type(None)}
        assert not isinstance(value, str) or len(value) <= 200
    buckets = [one for one in (metadata, other) if isinstance(one, dict)]
    if any("user_api_key" in one for one in buckets):
        copies = [one.get("requester_metadata") for one in buckets]
        names = {name for one in copies if isinstance(one, dict) for name in one}
        assert kept.keys() <= names


@pytest.mark.parametrize("make", [FallbackRoutingStrategy, FallbackProxyHandler])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_one_is_refused_where_it_is_given(make: Any, wrong: str) -> None:
    """The message is the core's, before any Router is there."""
    with pytest.raises(FallbackConfigError, match="observers: got "):
        make(observers=WRONG[wrong])
