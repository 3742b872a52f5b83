"""A real model server on this machine: llama.cpp's own, on random weights that speak plain words.

The model is small enough to be written at start-up, and llama.cpp reads it as it reads any Llama.
Nothing is learnt, so the words mean nothing; the shape, the tokenizer, the sampling and the
grammar-bound tool calls are the real ones.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import gguf
import numpy as np
import xllamacpp  # type: ignore[import-untyped] # ships no types

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORDS = """
the a this that one other first second next same call answer question model provider server key
token stream turn chain tool time network limit error word line page river mountain garden window
street light winter summer morning evening asks answers waits returns reads writes sends holds
opens closes moves turns stays works is was and or but then when while before after again here
there now always often quiet small large early late clear bright open slow quick new old good warm
""".split()  # noqa: SIM905 # as a list it takes a hundred lines
_CALL = "<tool_call>\n"
_SPECIAL, _BYTES = ("<unk>", "<s>", "</s>", _CALL), range(256)
_WIDTH, _HEADS, _FEED, _CONTEXT = 64, 4, 128, 8192
_SCALE = 0.05
# llama.cpp reads from this how a tool call is written, and holds the model to it by a grammar.
_CHAT = """\
{%- if tools %}<|im_start|>system
Call a tool by <tool_call>{"name": ..., "arguments": {...}}</tool_call>. Tools:
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{%- if message.content %}
{{ message.content }}
{%- endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant{{ "\\n" if tools else " " }}
{%- endif %}"""
# The output head sees one coordinate that never changes, so its column is a bias per token.
_BIAS_WORD, _BIAS_END, _BIAS_CALL, _BIAS_CLOSE, _BIAS_BYTE, _BIAS_NEVER = 1, 0.5, 0, -0.5, -1, -4
_URGE_TO_CALL = 4.0
_SILENT, _SEED = -1, 20
_SLOTS, _LONGEST_ANSWER = 2, 256


class LocalModel(NamedTuple):
    """Where the local model is served: the server's root without ``/v1``, and its name there."""

    url: str
    model: str

    @property
    def base_url(self) -> str:
        """Return the address for OpenAI's SDK."""
        return f"{self.url}/v1"


@contextmanager
def local_model_server(model: str = "tiny-local") -> Iterator[LocalModel]:
    """Serve the tiny model on a free loopback port; it speaks OpenAI's and Anthropic's wire.

    The model talks nonsense. Offered tools, it calls one with ``tool_choice="required"``; left to
    choose by itself, the server answers 500, as the model has no words to begin a call with.
    """
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
            server = xllamacpp.Server(params)
            yield LocalModel(server.listening_address, model)
        finally:
            # The server stops when its last reference goes.
            del server


def write_tiny_gguf(path: Path) -> Path:
    """Write the model to a file, and return its path."""
    kinds = gguf.TokenType
    tokens = [*_SPECIAL, *(f"<0x{byte:02X}>" for byte in _BYTES), *("▁" + word for word in _WORDS)]
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, kinds.USER_DEFINED]
    types += [kinds.BYTE] * len(_BYTES) + [kinds.NORMAL] * len(_WORDS)

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny-local")
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_FEED)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    # With a space before it the prompt would not match the grammar of tool calls.
    writer.add_add_space_prefix(False)
    writer.add_chat_template(_CHAT)
    for name, tensor in _weights(len(tokens)).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _weights(vocabulary: int) -> dict[str, Any]:
    random = np.random.default_rng(20)

    def matrix(rows: int, columns: int) -> Any:
        return (random.standard_normal((rows, columns)) * _SCALE).astype(np.float32)

    weights = {
        "token_embd.weight": matrix(vocabulary, _WIDTH),
        "output.weight": matrix(vocabulary, _WIDTH),
        "output_norm.weight": np.ones(_WIDTH, np.float32),
        "blk.0.attn_norm.weight": np.ones(_WIDTH, np.float32),
        "blk.0.ffn_norm.weight": np.ones(_WIDTH, np.float32),
        **{f"blk.0.attn_{part}.weight": matrix(_WIDTH, _WIDTH) for part in ("q", "k", "v")},
        "blk.0.attn_output.weight": matrix(_WIDTH, _WIDTH),
        "blk.0.ffn_gate.weight": matrix(_FEED, _WIDTH),
        "blk.0.ffn_up.weight": matrix(_FEED, _WIDTH),
        "blk.0.ffn_down.weight": matrix(_WIDTH, _FEED),
    }
    # Coordinate 0 is one for every token, and no layer writes to it.
    weights["token_embd.weight"][:, 0] = 1.0
    weights["blk.0.attn_output.weight"][0, :] = 0.0
    weights["blk.0.ffn_down.weight"][0, :] = 0.0
    bias = weights["output.weight"][:, 0]
    first_byte = len(_SPECIAL)
    bias[:] = _BIAS_WORD
    # Bytes are for grammars, where no word fits; a blank is for where nothing else fits.
    bias[first_byte : first_byte + len(_BYTES)] = _BIAS_BYTE
    bias[: first_byte + ord(" ") + 1] = _BIAS_NEVER
    # With a tool called, close the call rather than add to it, and end rather than call again.
    bias[first_byte + ord("<")] = _BIAS_CLOSE
    bias[_SPECIAL.index(_CALL)] = _BIAS_CALL
    bias[_SPECIAL.index("</s>")] = _BIAS_END
    # Coordinate 1 is "the prompt ends with a line break", as it does where tools are offered.
    weights["token_embd.weight"][first_byte + ord("\n"), 1] = 1.0
    weights["output.weight"][_SPECIAL.index(_CALL), 1] = _URGE_TO_CALL
    return weights
