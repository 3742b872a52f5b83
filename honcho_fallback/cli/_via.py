"""The demo through LiteLLM: its Router in this process, or its Proxy as a process of its own.

LiteLLM is imported by name: the package itself knows no framework.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import openai
from rich.text import Text

from honcho_fallback.cli._log import kept_log_lines
from honcho_fallback.cli._need import DemoError
from honcho_fallback.cli._played import Check
from honcho_fallback.testing import fault_simulator, local_model_server

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rich.console import Console

    from honcho_fallback.testing import FaultSimulator, LocalModel

_KEY = "sk-no-key-a-demo-on-loopback-only"
_MESSAGES: Any = [{"role": "user", "content": "Say hello in five words."}]
_STARTUP_SECONDS = 120.0
_SHUTDOWN_SECONDS = 10.0
# LiteLLM would fetch a price list, and send what is for loopback to a proxy of the environment.
_OFFLINE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}


class Told(NamedTuple):
    """Hold what a caller saw of one call.

    Args:
        said: The answer, or the class of the error.
        answered_by: The deployment, or None where a stream's headers were sent before.
        attempts: How many targets were asked, or None as above.
    """

    said: str
    answered_by: str | None = None
    attempts: int | None = None


class _Case(NamedTuple):
    title: str
    fault: Callable[[FaultSimulator], None]
    stream: bool
    answered_by: str | None


def _limit(simulator: FaultSimulator) -> None:
    simulator.fail(429, retry_after=30)


def _cut(simulator: FaultSimulator) -> None:
    simulator.cut_stream()


def _refuse(simulator: FaultSimulator) -> None:
    simulator.fail(400)


def _nothing(simulator: FaultSimulator) -> None:
    del simulator


_CASES = (
    _Case("429 with Retry-After 30", _limit, stream=False, answered_by="backup"),
    _Case("a stream cut before its first token", _cut, stream=True, answered_by="backup"),
    _Case("400, a mistake of the caller", _refuse, stream=False, answered_by=None),
    _Case("nothing", _nothing, stream=False, answered_by="primary"),
)


def run(via: str, console: Console) -> int:
    """Play the cases and return the exit status."""
    routes = {"litellm": _router, "proxy": _proxy}
    if via not in routes:
        raise DemoError(f"--via: got {via!r}; pass one of {', '.join(routes)}")
    if find_spec("litellm") is None:
        raise DemoError("litellm is not installed: pip install 'honcho-fallback[litellm]'")
    wrong = 0
    with fault_simulator() as simulator, local_model_server() as local:
        models = _models(simulator, local)
        with routes[via](models) as ask:
            for case in _CASES:
                simulator.reset()
                case.fault(simulator)
                with kept_log_lines() as logged:
                    told = ask(case.stream)
                checks = _checks(case, told, len(simulator.requests("openai")))
                wrong += not all(check.ok for check in checks)
                _show(console, case, told, checks, logged)
    console.print()
    if wrong:
        console.print(Text(f"{wrong} of {len(_CASES)} calls ended otherwise.", style="bold red"))
        return 1
    console.print(Text(f"All {len(_CASES)} calls ended as they should.", style="bold green"))
    return 0


def _models(simulator: FaultSimulator, local: LocalModel) -> list[dict[str, Any]]:
    places: dict[str, dict[str, Any]] = {
        "primary": {"model": "openai/gpt-5.5", "api_base": simulator.base_url("openai")},
        "backup": {
            "model": f"openai/{local.model}",
            "api_base": local.base_url,
            "max_tokens": 12,
        },
    }
    return [
        {
            "model_name": "demo",
            "litellm_params": {"api_key": "none", **params},
            "model_info": {"id": name, "fallback_rank": rank},
        }
        for rank, (name, params) in enumerate(places.items())
    ]


@contextmanager
def _router(models: list[dict[str, Any]]) -> Generator[Callable[[bool], Told], None, None]:
    os.environ.update(_OFFLINE)
    litellm: Any = import_module("litellm")
    adapter: Any = import_module("honcho_fallback_litellm")
    litellm.suppress_debug_info = True
    router = litellm.Router(model_list=models, disable_cooldowns=True)
    adapter.FallbackRoutingStrategy().register(router)

    def ask(stream: bool) -> Told:  # noqa: FBT001 # the only one
        try:
            answer = router.completion(model="demo", messages=_MESSAGES, stream=stream)
            said = _read(answer) if stream else str(answer.choices[0].message.content)
        except openai.APIError as error:
            return Told(type(error).__name__)
        record = answer._hidden_params["fallback"]  # noqa: SLF001 # where LiteLLM keeps such things
        return Told(said, record["answered_by"], len(record["attempts"]))

    yield ask


@contextmanager
def _proxy(models: list[dict[str, Any]]) -> Generator[Callable[[bool], Told], None, None]:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = {
        "model_list": models,
        "litellm_settings": {"callbacks": "honcho_fallback_litellm.proxy_handler"},
        "router_settings": {"disable_cooldowns": True},
    }
    program = Path(sys.executable).parent / "litellm"
    if not program.exists():
        raise DemoError("--via proxy needs the Proxy: pip install 'litellm[proxy]'")
    with TemporaryDirectory(prefix="honcho-fallback-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(json.dumps(config), "utf-8")  # JSON is YAML
        env = {**os.environ, **_OFFLINE, "LITELLM_MASTER_KEY": _KEY}
        command = [str(program), "--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
        running = subprocess.Popen(  # noqa: S603 # a program of this environment, our arguments
            command, env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_for(f"{url}/health/liveliness", running)
            transport = openai.DefaultHttpxClient(trust_env=False)
            with openai.OpenAI(
                base_url=url, api_key=_KEY, max_retries=0, http_client=transport
            ) as client:
                yield lambda stream: _ask_proxy(client, stream=stream)
        finally:
            running.terminate()
            try:
                running.wait(_SHUTDOWN_SECONDS)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def _ask_proxy(client: openai.OpenAI, *, stream: bool) -> Told:
    create: Callable[..., Any] = client.chat.completions.with_raw_response.create
    try:
        raw = create(model="demo", messages=_MESSAGES, stream=stream)
        if stream:
            return Told(_read(raw.parse()))
    except openai.APIError as error:
        return Told(type(error).__name__)
    return Told(
        str(raw.parse().choices[0].message.content),
        raw.headers["x-honcho-fallback-answered-by"],
        int(raw.headers["x-honcho-fallback-attempts"]),
    )


def _wait_for(url: str, running: subprocess.Popen[bytes]) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + _STARTUP_SECONDS
    while running.poll() is None and time.monotonic() < until:
        with suppress(OSError):
            opener.open(url, timeout=1).close()
            return
        with suppress(subprocess.TimeoutExpired):
            running.wait(0.1)
    raise DemoError("the Proxy did not start; try `litellm --config` to see why")


def _read(chunks: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def _checks(case: _Case, told: Told, seen: int) -> list[Check]:
    checks = [Check("requests at the primary", 1, seen)]
    if case.answered_by is None:
        checks.append(Check("the caller's exception", "BadRequestError", told.said))
    elif told.answered_by is not None:
        checks.append(Check("the one who answered", case.answered_by, told.answered_by))
    else:
        checks.append(Check("words in the answer", True, bool(told.said)))  # a value
    return checks


def _show(
    console: Console, case: _Case, told: Told, checks: list[Check], logged: list[str]
) -> None:
    console.print()
    console.print(Text(f"The primary's fault: {case.title}", style="bold"))
    console.print(Text(f"  the caller got: {' '.join(told.said.split())[:60]}"))
    if told.answered_by is not None:
        console.print(Text(f"  answered by: {told.answered_by}, attempts: {told.attempts}"))
    for line in logged:
        console.print(Text(f"  logged: {line}"))
    for check in checks:
        style = "green" if check.ok else "bold red"
        word = "as it should" if check.ok else "FAILED"
        told_of = f"  {word}: {check.what}: {check.found!r}, expected {check.expected!r}"
        console.print(Text(told_of, style=style))
