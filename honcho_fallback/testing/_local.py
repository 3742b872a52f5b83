"""A real model server on this machine: llama.cpp's own, on the tiny model."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from honcho_fallback.testing._gguf import write_tiny_gguf
from honcho_fallback.testing._need import need

if TYPE_CHECKING:
    from collections.abc import Generator

_SILENT, _SEED = -1, 20
_SLOTS, _CONTEXT, _LONGEST_ANSWER = 2, 8192, 256


class LocalModel(NamedTuple):
    """Tell where the local model is served.

    Args:
        url: Root of the server, without ``/v1``.
        model: The name it answers to.
    """

    url: str
    model: str

    @property
    def base_url(self) -> str:
        """The ``base_url`` of an OpenAI client."""
        return f"{self.url}/v1"


@contextmanager
def local_model_server(model: str = "tiny-local") -> Generator[LocalModel, None, None]:
    """Serve the tiny model on a free loopback port; it speaks OpenAI's and Anthropic's wire.

    The model talks nonsense. Offered tools, it calls one with ``tool_choice="required"``; left to
    choose by itself, the server answers 500, as the model has no words to begin a call with.

    Args:
        model: The name to answer to.

    Raises:
        ImportError: The extra ``testing`` is not installed.
    """
    xllamacpp = need("xllamacpp")
    with TemporaryDirectory(prefix="honcho-fallback-") as folder:
        params = xllamacpp.CommonParams()
        params.model.path = str(write_tiny_gguf(Path(folder) / "tiny.gguf"))
        params.hostnames, params.port = ["127.0.0.1"], 0
        params.n_parallel, params.n_ctx, params.n_predict = _SLOTS, _CONTEXT, _LONGEST_ANSWER
        params.warmup, params.model_alias = False, {model}
        params.sampling.temp, params.sampling.seed = 1.0, _SEED
        params.use_jinja = True
        params.verbosity = _SILENT
        server: Any = None
        try:
            with _deferred_interrupts():
                server = xllamacpp.Server(params)
            yield LocalModel(server.listening_address, model)
        finally:
            # The server stops when its last reference goes.
            del server


@contextmanager
def _deferred_interrupts() -> Generator[None, None, None]:
    # Ctrl-C in the middle of the server's start would leave one that hangs.
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield  # nothing is raised here
        return
    signals: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: signals.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if signals:
        signal.raise_signal(signal.SIGINT)
