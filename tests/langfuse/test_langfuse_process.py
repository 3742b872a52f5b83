"""What depends on the process: keys, the global provider, exit, a server that is ill."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from langfuse import Langfuse
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from honcho_fallback import FallbackPolicy, Target
from honcho_fallback.records import JsonlObserver
from honcho_fallback.testing import StatusError
from honcho_fallback_langfuse import LangfuseCallbackHandler
from honcho_fallback_otel import OpenTelemetryMetrics
from honcho_fallback_prometheus import PrometheusObserver
from tests.helpers.langfuse_server import stored
from tests.helpers.provider import Reply
from tests.helpers.scripted import repeating

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from honcho_fallback import FallbackObserver
    from tests.helpers.otlp import OtlpReceiver
    from tests.helpers.provider import ProviderServer


PREAMBLE = """
import atexit, json, logging, os, socket, sys

registered = []
register = atexit.register
atexit.register = lambda do, *args, **kwargs: (
    registered.append(sys._getframe(1).f_globals["__name__"]), register(do, *args, **kwargs))[1]

from honcho_fallback import FallbackPolicy, Target
from honcho_fallback_langfuse import LangfuseCallbackHandler

def call(*handlers, name="one", ask=lambda attempt: "hello"):
    policy = FallbackPolicy([Target(name, "local")], agent="worker", observers=handlers)
    return policy.call(ask)
"""

KEYS = {"LANGFUSE_PUBLIC_KEY": "pk-own", "LANGFUSE_SECRET_KEY": "sk-own", "LANGFUSE_TIMEOUT": "1"}


def run(code: str, folder: Path, **environment: str) -> Any:
    """Run code in a fresh interpreter, and return what it printed as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + code],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "NO_PROXY": "127.0.0.1",
            **environment,
        },
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_without_usable_keys_nothing_happens(
    tmp_path: Path, wire: OtlpReceiver, providers: ProviderServer
) -> None:
    """HON-067: without a client and both keys nothing is imported, and every call works.

    What no client can be built with is told once at WARNING; the application's client is used from
    when it is made. It is the global one: with the variable of the page Anthropic's package
    reports nothing to it beside our span.
    """
    claude = providers.new("anthropic")
    claude.standing = Reply(text="hello")
    told = run(
        f"""
warnings = []
class Kept(logging.Handler):
    def emit(self, record):
        warnings.append(record.getMessage())
logging.getLogger("honcho_fallback.langfuse").addHandler(Kept(logging.WARNING))

def tried(**environment):
    os.environ.update(environment)
    handler = LangfuseCallbackHandler()
    return [call(handler), len(handler._calls), handler.close(1)]

early = LangfuseCallbackHandler()
told = [tried(), tried(LANGFUSE_PUBLIC_KEY="pk-half"), [call(early, name="before"), 0, True]]
loaded = [name for name in ("langfuse", "opentelemetry") if name in sys.modules]
told.append(tried(LANGFUSE_SAMPLE_RATE="10%", **{KEYS!r}))
del os.environ["LANGFUSE_PUBLIC_KEY"], os.environ["LANGFUSE_SAMPLE_RATE"]
from langfuse import Langfuse
client = Langfuse(public_key="pk-app", secret_key="sk-app", base_url={wire.base_url!r})
import anthropic
model = anthropic.Anthropic(api_key="k", base_url={claude.url!r}, max_retries=0)
asked = {{"model": "m", "max_tokens": 9, "messages": [{{"role": "user", "content": "hi"}}]}}
ask = lambda attempt: model.messages.create(**asked).content[0].text
told.append([call(early, name="after", ask=ask), len(early._calls), early.close(10)])
ours = [name for name in registered if name.startswith("honcho")]
print(json.dumps([told, loaded, ours, warnings]))
""",
        tmp_path,
        ANTHROPIC_OPEN_TELEMETRY="false",
    )
    *rest, (warning,) = told
    assert rest == [[["hello", 0, True]] * 5, [], []]
    assert warning.startswith("nothing is sent to Langfuse: its client raised ValueError; ")
    assert [stored(span).model for span in wire.spans] == ["after"]
    assert {export.credentials for export in wire.exports} == {("pk-app", "sk-app")}


def test_with_keys_a_client_is_built_beside_the_application_s_provider(
    tmp_path: Path, wire: OtlpReceiver
) -> None:
    """The application's provider sees nothing of ours and stays the global one.

    A forked child sends what it does itself, and nothing of its parent's a second time.
    """
    told = run(
        """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

def is_untouched():
    return isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

handler = LangfuseCallbackHandler()
built = [name for name in ("langfuse", "opentelemetry") if name in sys.modules]
before = is_untouched()
call(handler, name="early")
exporter = InMemorySpanExporter()
provider = TracerProvider(sampler=ALWAYS_OFF)
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
with trace.get_tracer("web").start_as_current_span("GET /"):
    call(handler, name="late")
from langfuse import get_client
with get_client().start_as_current_observation(name="request"):
    call(LangfuseCallbackHandler(), name="nested")
child = os.fork()
if child == 0:
    call(handler, name="child")
    os._exit(0 if handler.close(10) else 1)
print(json.dumps([
    built, before, trace.get_tracer_provider() is provider,
    len(exporter.get_finished_spans()), os.waitpid(child, 0)[1], handler.close(10),
    [name for name in registered if name.startswith("honcho")],
]))
""",
        tmp_path,
        LANGFUSE_BASE_URL=wire.base_url,
        **KEYS,
    )
    assert told == [["langfuse", "opentelemetry"], True, True, 0, 0, True, []]
    assert {export.credentials for export in wire.exports} == {("pk-own", "sk-own")}
    told = {one.model or one.name: one for one in map(stored, wire.spans)}
    assert set(told) == {"early", "late", "nested", "request", "child"}
    assert len(wire.spans) == len(told)
    assert told["nested"].parent_id == told["request"].id
    assert told["late"].trace_name == "worker"


def test_an_ill_server_harms_no_call(tmp_path: Path, wire: OtlpReceiver) -> None:
    """401, 413, 5xx, 429, refused, silent, no such host: the call works, close returns."""
    told = run(
        """
from langfuse import Langfuse
from opentelemetry.sdk.trace import TracerProvider
from tests.helpers.otlp import otlp_receiver

logging.disable()
closed = socket.socket()
closed.bind(("127.0.0.1", 0))
urls = {"refused": f"http://127.0.0.1:{closed.getsockname()[1]}", "no host": "http://no.invalid",
        "no address": "::"}
told = {}

def tried(name, url, timeout):
    client = Langfuse(public_key=f"pk-{name}", secret_key="sk", base_url=url, timeout=1,
                      tracer_provider=TracerProvider(shutdown_on_exit=False))
    handler = LangfuseCallbackHandler(client)
    told[name] = [call(handler), handler.flush(timeout) in (True, False), len(handler._calls)]
    return handler

with otlp_receiver() as receiver:
    for status in (401, 403, 404, 413, 500, 429, 502, 503, 504):
        receiver.status = status
        tried(str(status), receiver.base_url, 0.3)
    receiver.silent = True
    hanging = tried("silent", receiver.base_url, 0.3)
    told["silent, still"] = [hanging.flush(0.05)]
    for name, url in urls.items():
        tried(name, url, 0.3)
    print(json.dumps(told), flush=True)
    os._exit(0)
""",
        tmp_path,
    )
    assert told.pop("silent, still") == [False]
    assert len(told) == 13
    assert set(map(tuple, told.values())) == {("hello", True, 0)}


@pytest.fixture
def hanging_url() -> Iterator[str]:
    """Take connections, and never say anything."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_no_call_is_lost_where_disk_langfuse_and_collector_are_dead(
    hanging_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk, a Langfuse and a collector that hang: each call is answered and counted."""
    client = Langfuse(
        public_key="pk-dead",
        secret_key="sk-dead",
        base_url=hanging_url,
        timeout=1,
        tracer_provider=TracerProvider(shutdown_on_exit=False),
    )
    exporter = OTLPMetricExporter(endpoint=f"{hanging_url}/v1/metrics", timeout=1)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=20)
    registry = CollectorRegistry()
    records = JsonlObserver("/dev/full")
    langfuse = LangfuseCallbackHandler(client)
    meters = MeterProvider([reader], shutdown_on_exit=False)
    metrics = [OpenTelemetryMetrics(meters), PrometheusObserver(registry)]
    observers: list[FallbackObserver] = [records, langfuse, *metrics]
    policy = FallbackPolicy([Target("one"), Target("two")], agent="chat", observers=observers)
    ask = repeating(one=[StatusError(503)], two=["hello"]).ask
    with caplog.at_level(logging.DEBUG, "honcho_fallback"), ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda _: policy.call(ask), range(400))]
        records.close()
        assert not langfuse.flush(0)
    assert answers == ["hello"] * 400
    labels = {"agent": "chat", "outcome": "success", "target": "two"}
    assert registry.get_sample_value("honcho_fallback_calls_total", labels) == 400
    assert records.lost == 400
    lines = [one.getMessage() for one in caplog.records if one.name == "honcho_fallback"]
    assert sum("calls are not saved" in line for line in lines) == 1
    assert len(lines) == 400 + 1  # and one for each switch
    langfuse.close(0)
    client.shutdown()
    reader.shutdown(timeout_millis=1000)
