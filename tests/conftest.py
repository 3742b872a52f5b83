"""For every test: a clock that stands still, and cassettes with two guards.

Replaying has a trap for a fallback library: a request that no cassette knows is refused inside the
transport, the SDK calls that a lost connection, the policy falls back, and the test passes for
the wrong reason. Hence the guards: no request may be refused, and every cassette is played to its
end.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import trustme
from vcr.errors import CannotOverwriteExistingCassetteException
from vcr.record_mode import RecordMode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vcr.cassette import Cassette
    from vcr.request import Request

    from honcho_fallback.testing import Clock
    from tests.helpers.langfuse_server import Memory
    from tests.helpers.provider import ProviderServer

# Or LiteLLM, also in processes that tests start, asks the network for prices, for eight seconds.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
# What is imported until the tests begin stays, and the collector would look at it again and again.
gc.disable()
# Or the Agents SDK's thread, which has no key for its traces, logs that into another test.
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

# What takes a Proxy, a fleet of processes, a notebook or a soak: `make test-slow` runs it.
SLOW = (
    "corpus/test_figures.py",
    "notebooks",
    "benchmarks",
    "live_local",
    "agents/test_load.py",
    "litellm/test_proxy_load.py",
    "litellm/test_proxy.py",
    "litellm/test_two_processes.py",
    "examples/test_service.py",
)
# Files of `make test` that take longest; one that begins last would be waited for by the others.
LONG = (
    "examples",
    "contract/failover/test_scenarios.py",
    "contract/ways",
    "litellm/test_outages.py",
    "litellm/test_same_as_without.py",
    "contract/test_labels_matrix.py",
    "unit/test_secrets.py",
)
CASSETTES = Path(__file__).resolve().parent.parent / "cassettes"

# Only what a client or the classifier reads; a list of what to drop would let a new one through.
KEPT_FROM_REQUESTS = frozenset({"anthropic-beta", "anthropic-version", "content-type"})
KEPT_FROM_RESPONSES = frozenset(
    {"content-type", "retry-after", "retry-after-ms", "x-should-retry"}
)

# LangChain's integrations keep their latest 128 asynchronous clients, by address.
CLIENT_CACHES = {
    "langchain_anthropic._client_utils": "_get_default_async_httpx_client",
    "langchain_openai.chat_models._client_utils": "_cached_async_httpx_client",
}


# Where tests call LiteLLM.
LITELLM_USERS = frozenset(
    {
        "contract",
        "examples",
        "honcho",
        "langfuse",
        "litellm",
        "outages",
        "test_house.py",
        "test_readme.py",
        "testing",
    }
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow files, and begin with those that take longest, as they are listed."""
    here = Path(__file__).resolve().parent
    ranks = {here / path: rank for rank, path in enumerate((*SLOW, *LONG))}

    @cache
    def rank_of(path: Path) -> int:
        places = (path, *path.parents)
        return next((ranks[place] for place in places if place in ranks), len(ranks))

    for item in items:
        if rank_of(item.path) < len(SLOW):
            item.add_marker("slow")
    items.sort(key=lambda item: rank_of(item.path))


def pytest_collection_finish() -> None:
    """Let the collector pass over what was imported: many tests collect, and wait for it."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish() -> Iterator[None]:
    """Show everything again: Hypothesis, imported at the end, looks for who refers to what."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def few_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust one authority: each client reads all that it trusts; the web's take it 40 ms."""
    path = tmp_path_factory.mktemp("trusted") / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    with patch.dict(os.environ, {"SSL_CERT_FILE": str(path)}):
        yield


def slim_request(request: Request) -> Request:
    """Keep the headers that say what is asked, not who asks."""
    request.headers = {
        name: value
        for name, value in request.headers.items()
        if name.lower() in KEPT_FROM_REQUESTS
    }
    return request


def slim_response(response: dict[str, Any]) -> dict[str, Any]:
    headers = response["headers"]
    kept = {name: headers[name] for name in headers if name.lower() in KEPT_FROM_RESPONSES}
    return {**response, "headers": kept}


@pytest.fixture(scope="module")
def vcr_config() -> dict[str, Any]:
    """Match on everything a provider would see, the body included."""
    return {
        "match_on": ["method", "scheme", "host", "port", "path", "query", "body"],
        "before_record_request": slim_request,
        "before_record_response": slim_response,
        "decode_compressed_response": True,
        "record_on_exception": False,
    }


@pytest.fixture(scope="module")
def vcr_cassette_dir(request: pytest.FixtureRequest) -> str:
    return str(CASSETTES / request.node.path.stem)


@pytest.fixture(scope="module", autouse=True)
def no_client_outlives_its_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drop what LangChain and LiteLLM keep for event loops that are closed.

    LangChain's integrations keep clients, LiteLLM leaves aiohttp's sessions and their connections
    open. Whichever test they are collected in would hear of a socket that another one opened.
    """
    yield
    caches = [getattr(sys.modules.get(name), cache, None) for name, cache in CLIENT_CACHES.items()]
    used = [cache for cache in caches if cache is not None and cache.cache_info().currsize]
    sessions = "litellm" in sys.modules and not LITELLM_USERS.isdisjoint(request.path.parts)
    if used and not sessions:
        gc.collect()  # what the module's own tests left open still fails
    if used or sessions:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for cache in used:
                cache.cache_clear()
            gc.collect()
        gc.freeze()  # what was loaded meanwhile: each collection would look at it


@pytest.fixture(autouse=True)
def no_request_was_refused() -> Iterator[None]:
    """Fail a test during which a cassette refused a request, whatever became of the refusal."""
    refused: list[str] = []
    build = CannotOverwriteExistingCassetteException.__init__

    def note(self: CannotOverwriteExistingCassetteException, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        refused.append(str(self))

    with patch.object(CannotOverwriteExistingCassetteException, "__init__", note):
        yield
    if refused:
        pytest.fail("the cassette refused a request: " + "\n".join(refused), pytrace=False)


@pytest.fixture(autouse=True)
def cassette_was_played_to_its_end(vcr: Cassette | None) -> Iterator[None]:
    """Fail a replay that asked for less than was recorded, or for nothing at all."""
    yield
    if vcr is None or vcr.record_mode != RecordMode.NONE:
        return
    if not len(vcr):
        pytest.fail(f"there is no recording: {vcr._path}", pytrace=False)
    if not vcr.all_played:
        pytest.fail(
            f"only {vcr.play_count} of {len(vcr)} recorded answers were asked for", pytrace=False
        )


@pytest.fixture(autouse=True)
def no_line_was_written_yet() -> None:
    """Let each test's log begin anew: a process leaves out what it has written often enough."""
    if "honcho_fallback" in sys.modules:
        sys.modules["honcho_fallback"].Runtime.current()._lines.clear()


@pytest.fixture
def clock() -> Iterator[Clock]:
    """Stand for the time that policies see."""
    from honcho_fallback.testing import Clock  # noqa: PLC0415 # for the tests that ask for it

    with Clock().installed() as clock:
        yield clock


@pytest.fixture(scope="session")
def provider_server() -> Iterator[ProviderServer]:
    """Serve scripted providers for as long as the tests run."""
    from tests.helpers.provider import ProviderServer  # noqa: PLC0415 # for the tests that ask for it

    with ProviderServer(keep_alive=False) as server:
        yield server


@pytest.fixture
def providers(provider_server: ProviderServer) -> ProviderServer:
    provider_server.reset()
    return provider_server


@pytest.fixture(scope="session")
def memory_client() -> Iterator[Memory]:
    """Keep one real Langfuse client that exports to memory."""
    from tests.helpers.langfuse_server import langfuse_memory  # noqa: PLC0415 # for the tests that ask for it

    with langfuse_memory("memory") as memory:
        yield memory


@pytest.fixture
def memory(memory_client: Memory) -> Memory:
    memory_client.clear()
    return memory_client


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Serve a real Redis on a free port."""
    from tests.helpers.redis_server import free_port, redis_server  # noqa: PLC0415 # for the tests that ask for it

    port = free_port()
    with redis_server(tmp_path_factory.mktemp("redis"), port):
        yield port


@pytest.fixture
def redis_url(redis_port: int) -> str:
    return f"redis://127.0.0.1:{redis_port}/0"
