"""The Proxy for real: a process of `litellm --config`, asked with the plain openai client."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import openai
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

for needed in ("apscheduler", "fastapi_sso", "uvicorn", "soundfile"):
    pytest.importorskip(needed, reason="the Proxy's own packages are not installed")

CONFIG = Path(__file__).resolve().parents[2] / "notebooks" / "proxy" / "config.yaml"
KEY = "sk-a-long-key-for-tests-on-loopback-only"
STARTUP_SECONDS = 55.0
MESSAGES: Any = [{"role": "user", "content": "hello"}]
HOOKS_ONLY = """
router_settings:
  num_retries: 1
  retry_policy: {BadRequestErrorRetries: 0, DefaultRetries: 1, RateLimitErrorRetries: 1}
"""

pytestmark = pytest.mark.timeout(120)


class Proxy(NamedTuple):
    """Hold a running Proxy and its client."""

    url: str
    client: openai.OpenAI
    log: Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serve(config: str, providers: Any, folder: Path, **env: str) -> Iterator[Proxy]:
    """Run a Proxy until the block ends."""
    port = free_port()
    path, log = folder / f"config-{port}.yaml", folder / f"proxy-{port}.log"
    path.write_text(config, "utf-8")
    program = Path(sys.executable).parent / "litellm"
    clean = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    told = {
        "LITELLM_MASTER_KEY": KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_API_KEY": "key-of-primary",
        "OPENAI_BASE_URL": f"{providers.url}/primary",
        "ANTHROPIC_API_KEY": "key-of-backup",
        "ANTHROPIC_BASE_URL": f"{providers.url}/backup",
        **env,
    }
    command: list[str | Path] = [
        program,
        "--config",
        path,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with log.open("w") as output:
        running = subprocess.Popen(
            command, env={**clean, **told}, cwd=folder, stdout=output, stderr=subprocess.STDOUT
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{url}/health/liveliness", running, log)
        with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            yield Proxy(url, client, log)
    finally:
        running.send_signal(signal.SIGINT)
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def wait_for(url: str, running: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < until:
        if running.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=1):  # noqa: S310 # our own, on loopback
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail("the Proxy did not start:\n" + log.read_text()[-3000:], pytrace=False)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture(scope="module")
def upstream(make_providers: Any) -> Iterator[Any]:
    serving = make_providers()
    yield serving
    serving.stop()


@pytest.fixture(scope="module")
def running(upstream: Any, folder: Path) -> Iterator[Proxy]:
    """Run the Proxy of the notebook's config, cooldowns off so that tests do not meet."""
    config = CONFIG.read_text("utf-8") + "\nrouter_settings: {disable_cooldowns: true}\n"
    with serve(config, upstream, folder) as proxy:
        yield proxy


@pytest.fixture
def proxy(running: Proxy, upstream: Any) -> Proxy:
    upstream.forget()
    return running


def ask(proxy: Proxy, **options: Any) -> Any:
    return proxy.client.chat.completions.with_raw_response.create(
        model="deriver", messages=MESSAGES, **options
    )


def text(raw: Any) -> str:
    return raw.parse().choices[0].message.content or ""


def test_a_rate_limit_is_the_backups_answer(proxy: Proxy, upstream: Any) -> None:
    """429 at the primary, 200 for the client, and headers that say who answered."""
    upstream.fail("primary", 429, headers={"retry-after": "7"})

    raw = ask(proxy)

    assert text(raw) == "hello from backup"
    assert upstream.order == ["primary", "backup"]
    assert raw.headers["x-litellm-model-id"] == "backup"
    assert raw.headers["x-litellm-attempted-retries"] == "1"
    assert raw.headers["x-honcho-fallback-answered-by"] == "backup"
    assert raw.headers["x-honcho-fallback-primary"] == "primary"
    assert raw.headers["x-honcho-fallback-attempts"] == "2"
    assert raw.headers["x-honcho-fallback-reason"] == "rate_limit"


def test_a_primary_that_answers_is_the_only_one_asked(proxy: Proxy, upstream: Any) -> None:
    """The happy path says so in its headers."""
    raw = ask(proxy)
    assert text(raw) == "hello from primary"
    assert upstream.order == ["primary"]
    assert raw.headers["x-honcho-fallback-attempts"] == "1"
    assert "x-honcho-fallback-reason" not in raw.headers


@pytest.mark.parametrize("message", ["bad", "no tool named get_rate_limit"])
def test_a_wrong_request_is_a_400_after_one_request(
    message: str, proxy: Proxy, upstream: Any
) -> None:
    """The exact classifier: even where LiteLLM reads a rate limit in the text."""
    upstream.fail("primary", 400, body={"error": {"message": message}})
    with pytest.raises(openai.APIStatusError) as caught:
        ask(proxy)
    assert upstream.order == ["primary"]
    assert caught.value.status_code in ({400} if message == "bad" else {400, 429})


def test_nobody_answers(proxy: Proxy, upstream: Any) -> None:
    """The last provider's status comes out, after one request each."""
    upstream.fail("primary", 500)
    upstream.fail("backup", 503)
    with pytest.raises(openai.InternalServerError):
        ask(proxy)
    assert upstream.order == ["primary", "backup"]


@pytest.mark.parametrize("broken", ["refused", "cut"])
def test_streams(broken: str, proxy: Proxy, upstream: Any) -> None:
    """Refused at the opening or broken before content, the stream is the backup's."""
    if broken == "refused":
        upstream.fail("primary", 500)
    else:
        upstream.say("primary", upstream.Say(chunks=[], cut=True))
    stream = proxy.client.chat.completions.create(model="deriver", messages=MESSAGES, stream=True)
    words = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert "".join(words) == "hello from backup"
    assert upstream.order == ["primary", "backup"]


def test_twenty_clients_at_once(proxy: Proxy, upstream: Any) -> None:
    """Each gets the backup's answer, the primary one request for each."""
    upstream.fail("primary", 503)
    with ThreadPoolExecutor(20) as pool:
        said = list(pool.map(lambda _: text(ask(proxy)), range(20)))
    assert said == ["hello from backup"] * 20
    assert upstream.count("primary") == upstream.count("backup") == 20


def test_documented_hooks_only(upstream: Any, folder: Path) -> None:
    """Without the strategy: switches by class of error; a rate limit in the text fools LiteLLM."""
    upstream.forget()
    config = CONFIG.read_text("utf-8").replace("proxy_handler", "proxy_filter", 1) + HOOKS_ONLY
    with serve(config, upstream, folder) as proxy:
        upstream.fail("primary", 500)
        raw = ask(proxy)
        assert text(raw) == "hello from backup"
        assert upstream.order == ["primary", "backup"]
        assert raw.headers["x-litellm-model-id"] == "backup"
        assert "x-honcho-fallback-attempts" not in raw.headers

        upstream.forget()
        upstream.fail("primary", 400)
        with pytest.raises(openai.BadRequestError):
            ask(proxy)
        assert upstream.order == ["primary"]

        upstream.forget()
        body = {"error": {"message": "no tool named get_rate_limit"}}
        upstream.fail("primary", 400, body=body)
        assert text(ask(proxy)) == "hello from backup"


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
def test_a_second_proxy_on_the_same_redis_knows_the_cooldown(
    upstream: Any, folder: Path, redis_port: int
) -> None:
    """A target that one process cools down is passed over by the other."""
    upstream.forget()
    upstream.fail("primary", 429)
    shared = f"""
router_settings:
  redis_host: 127.0.0.1
  redis_port: {redis_port}
  cooldown_time: 60
"""
    config = CONFIG.read_text("utf-8") + shared
    with serve(config, upstream, folder) as first, serve(config, upstream, folder) as second:
        assert text(ask(first)) == "hello from backup"
        raw = ask(second)
        assert text(raw) == "hello from backup"
        assert upstream.order == ["primary", "backup", "backup"]
        assert raw.headers["x-honcho-fallback-attempts"] == "1"
        assert raw.headers["x-honcho-fallback-answered-by"] == "backup"
