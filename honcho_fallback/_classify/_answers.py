"""Say what an answer holds, in one place for all: text, cost, end, and failure under HTTP 200.

The shapes are a table of paths. Objects are read through what they hold, never through their
properties; those that are judged come from a library that the table names.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from honcho_fallback._classify import classify
from honcho_fallback._classify._content import (
    KIND,
    TABLES,
    TEXT,
    THOUGHTS,
    carries,
    is_known,
    is_thought,
    joined,
    opened,
    repeats,
    shape_of,
    word,
)
from honcho_fallback._classify._facts import as_status
from honcho_fallback._classify._read import find, first, plain
from honcho_fallback._classify._tables import WORDS, by_key
from honcho_fallback._classify._usage import SCALARS, cost_of, ends, usage_of
from honcho_fallback._values.failure import Failure, FailureKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Answer(NamedTuple):
    """Say what an answer holds; None where it does not say.

    Args:
        content: A text where there are no tool calls, else a message with both; without what the
            model thought, and of the first choice alone.
        usage: Token counts: ``input_tokens``, ``output_tokens``, ``total_tokens``, and of these
            ``cache_read_tokens``, ``cache_write_tokens`` and ``reasoning_tokens``.
        finish_reason: The provider's word, lower case.
        model: As the provider names it.
        cost: US dollars, where the provider or LiteLLM counts them.
    """

    content: Any = None
    usage: Mapping[str, int] | None = None
    finish_reason: str | None = None
    model: str | None = None
    cost: float | None = None


_MODELS = tuple(TABLES["models"])
_TEXTS, _JSON, _RAW = frozenset(TABLES["texts"]), tuple(TABLES["call"]["json"]), TABLES["raw"]
_DECODER = json.JSONDecoder(strict=False)  # models write line breaks into strings
_FINISHING: dict[str, str] = TABLES["finishing"]
_ERROR = TABLES["error"]
_BODIES = [frozenset(keys) for keys in _ERROR["bodies"]]
BROKEN, EMPTY = by_key(TABLES["broken"]), by_key(TABLES["empty"])
_SIGNS = EMPTY | BROKEN
# What a part of an answer is in spite of itself, where refusals count.
_SPOILT = {key: row for key, row in _SIGNS.items() if row.kind is FailureKind.REFUSAL} | BROKEN


class ErrorInAnswer(Exception):  # noqa: N818 # its name is a row of the table
    """Stand for an error object inside an answer, so that the classifier can read it."""

    body = response = cast("Any", None)


def check_response(
    response: Any,
    *,
    needs_finish: bool = True,
    handed_out: bool = False,
    refusals: bool = False,
) -> Failure | None:
    """Say what is wrong with an answer that came under HTTP 200, or None; never raise.

    An empty text with an ordinary finish reason is a legal answer, and so is whatever this
    function does not know.

    Args:
        response: A response object of openai, anthropic, google-genai or LiteLLM, a message of
            LangChain, or a plain dict of such a shape; for a stream, the list or tuple of all its
            chunks or events. Of an HTTP client's response the status counts.
        needs_finish: Is a stream without a finish reason cut off? False where the server never
            sends one.
        handed_out: Does its reader have the content already? Then a call that nobody can make is
            the reader's to see, for nobody else can be asked.
        refusals: Is an answer one, too, that was stopped for safety after some text? Else it is
            only where nothing came.
    """
    cls = type(response)
    if cls.__module__.partition(".")[0] in WORDS["clients"]:
        status = as_status(plain(response, "status_code") or plain(response, "status"))
        if status is not None and status >= 400:  # nobody has raised it
            error = ErrorInAnswer()
            error.response = response
            return classify(error)
    stream = cls is list or cls is tuple
    verdict = _Verdict(response if stream else ())
    try:
        for item in reversed(response) if stream else (response,):  # the end tells most
            if not verdict.read(item):
                return None
            is_broken = verdict.body or verdict.finish in BROKEN
            if verdict.answered and verdict.finish and not is_broken:
                break
        verdict.spoilt = _SPOILT if refusals and not handed_out else BROKEN
        return verdict.failure(needs_finish=needs_finish, handed_out=handed_out)
    except Exception:  # noqa: BLE001  what cannot be read is not known
        return None


def read_answer(answer: Any) -> Answer:
    """Read what an answer holds: its content, what it cost and how it ended; never raise.

    Args:
        answer: As for ``check_response``; of other classes, too, what they hold under the same
            names is read.
    """
    if type(answer) is str:
        return Answer(answer)
    stream = type(answer) in {list, tuple}
    content = finish = model = None
    with suppress(Exception):
        content = joined(answer if stream else (answer,))
    for item in ends(answer) if stream else (answer,):
        with suppress(Exception):
            outer, (shape, part) = shape_of(item), opened(item)
            for one, holds in ((outer, item), (shape, part)):  # a generation's stands beside it
                if one is not None:
                    finish = word(first(find(holds, one.at), one.finish)) or finish
            names = (find(part, path) for path in _MODELS)
            model = model or next((name for name in names if name and isinstance(name, str)), None)
    return Answer(content, usage_of(answer), finish or None, model, cost_of(answer))


def has_content(chunk: Any) -> bool:
    """Tell whether a chunk of a stream carries content: text, a call, a refusal, media.

    A first chunk that only names the role, thinking, a sign of life, usage, an error and an end
    carry none. Everything true is content of what is no chunk or event of openai, anthropic,
    google-genai, LiteLLM or LangChain, nor a dict of such a shape.

    Args:
        chunk: Of any stream.
    """
    return _brings(chunk, THOUGHTS)


def thinks(chunk: Any) -> bool:
    """Tell whether a chunk of a stream brings thinking and no content, as a sign of life."""
    return _brings(chunk, frozenset()) and not _brings(chunk, THOUGHTS)


def refuses(chunk: Any) -> bool:
    """Tell whether a chunk of a stream brings the text of a refusal and no other content."""
    return _brings(chunk, THOUGHTS) and not _brings(chunk, THOUGHTS | {"refusal"})


def text_of(chunk: Any) -> str | None:
    """Return the text of a chunk, perhaps an empty one; None where it brings anything else."""
    with suppress(Exception):  # what cannot be read is no text
        text = joined((chunk,))
        is_other = thinks(chunk) or (has_content(chunk) and not text)  # an image, a refusal
        return text if isinstance(text, str) and not is_other else None
    return None


def plain_text(chunks: Sequence[Any]) -> str:
    """Return the text of chunks; nothing where one brings else, or where it is a document."""
    pairs = zip((None, *chunks), chunks, strict=False)
    texts = [text_of(chunk) for before, chunk in pairs if not repeats(chunk, before)]
    text = "" if None in texts else "".join(filter(None, texts))
    return "" if text.lstrip().startswith(("{", "[")) else text


def _brings(chunk: Any, without: frozenset[str]) -> bool:
    cls: Any = type(chunk)
    try:
        if isinstance(chunk, dict) or (cls not in SCALARS and is_known(cls)):
            shape, part = opened(chunk)
            if shape is not None:
                paths = shape.content + shape.partial
                paths += () if "refusal" in without else shape.refusal
                paths += () if without else shape.thinking
                parts = shape.parts_of(part)
                return any(carries(find(at, path), without) for at in parts for path in paths)
            if _error(chunk):
                return False
        return bool(chunk)
    except Exception:  # noqa: BLE001  what has no truth, as an array, is no empty chunk
        return True


class _Verdict:
    """Gather what an answer says of its own health, over all its chunks."""

    # What most answers never say stands on the class.
    body: Any = None  # the error inside it
    finish = ""
    answered = refused = ends = in_pieces = False
    lacking: bool | None = None  # whether all that was read lacks what has to be there

    def __init__(self, chunks: Sequence[Any]) -> None:
        self.chunks = chunks  # of a stream
        self.arguments: list[str] = []  # of whole tool calls
        self.spoilt = BROKEN  # what an answer that holds something can still be

    def read(self, item: Any) -> bool:
        """Read an answer or a chunk; False if it is neither."""
        cls: Any = type(item)
        if cls.__name__ in _RAW and is_known(cls):  # of with_raw_response; it keeps what it parses
            return self.read(item.parse())
        if not isinstance(item, dict) and not is_known(cls):
            return False
        self.body = self.body or _error(item)
        shape = shape_of(item)
        if shape is None:
            return self.body is not None
        if shape.inside:
            self.finish = self.finish or word(first(item, shape.finish))
            return self.read(first(item, shape.inside))
        part = find(item, shape.at)
        self.body = self.body or _document(first(part, shape.error))
        self.finish = self.finish or word(first(part, shape.finish))
        if word(first(part, shape.blocked)):
            self.finish = "(blocked)"
        # Where a stream's calls come in pieces, these are judged by what they make together.
        in_pieces = bool(self.chunks and shape.calls)
        for path in shape.content:
            if not self.answered:
                self.weigh(find(part, path), in_pieces=in_pieces)
        if not self.answered:
            self.refused |= first(part, shape.refusal) is not None
            lacks = bool(shape.required) and first(part, shape.required) is None
            self.lacking = lacks and self.lacking is not False
        mark = _FINISHING.get(word(first(part, shape.ending)))
        self.ends |= shape.ends or (mark is not None and find(part, mark) is not None)
        return True

    def weigh(self, content: Any, *, in_pieces: bool) -> None:
        """Find out whether content holds a text, a call or anything else to use."""
        for block in content if isinstance(content, list) else (content,):
            if not block or isinstance(block, str):
                self.answered |= bool(block)
                continue
            kind, text = first(block, KIND), first(block, TEXT)
            if kind == "message":
                self.weigh(find(block, "content"), in_pieces=in_pieces)
            elif kind == "refusal":
                self.refused = True
            elif is_thought(block):
                continue
            elif text is None and kind not in _TEXTS:
                self.answered, self.in_pieces = True, in_pieces
                self.arguments += () if in_pieces else filter(None, (first(block, _JSON),))
            else:
                self.answered |= bool(text)

    def failure(self, *, needs_finish: bool, handed_out: bool) -> Failure | None:
        if self.body:
            error = ErrorInAnswer()
            error.body = self.body
            failure = classify(error)
            return failure._replace(reason=f"an error in the answer: {failure.reason}")
        whole = joined(self.chunks) if self.in_pieces and not handed_out else None
        if isinstance(whole, dict):
            self.arguments = [call["arguments"] for call in whole["tool_calls"]]
        spent = EMPTY[self.finish].transient is False if self.finish in EMPTY else False
        unended = self.chunks and self.ends and not self.finish
        signs = (
            not all(map(_is_json, self.arguments))
            and ("(cut arguments)" if spent else "(arguments)"),
            self.finish,
            self.refused and not handed_out and "refusal",
            unended and (needs_finish or not self.answered) and "(unended)",
            self.lacking and not (self.chunks and self.finish) and "(lacking)",
        )
        row = next(filter(None, map((self.spoilt if self.answered else _SIGNS).get, signs)), None)
        name, code = ErrorInAnswer.__name__, self.finish.strip("()") or None
        return row and Failure.of(
            row.kind, code=code, reason=row.reason, error=name, transient=row.transient
        )


def _is_json(arguments: Any) -> bool:
    """Tell whether a tool can read its arguments: none, or JSON, perhaps several documents."""
    text = arguments.strip() if isinstance(arguments, str) else ""
    with suppress(ValueError, RecursionError):
        while text:  # some servers number all calls of an answer alike
            text = text[_DECODER.raw_decode(text)[1] :].lstrip()
    return not text


def _error(item: Any) -> Any:
    fields = item if isinstance(item, dict) else item.__dict__
    for name in _ERROR["names"]:
        error = find(item, name)
        # A sentence alone may be anybody's field.
        if error and (not isinstance(error, str) or len(fields) == 1 or "choices" in fields):
            return _document(error)
    complete = any(map(fields.keys().__ge__, _BODIES)) and not fields.get("success")
    return dict(fields) if complete else None


def _document(error: Any) -> Any:
    if not error or isinstance(error, str):
        return error and {"error": error}
    fields = error if isinstance(error, dict) else error.__dict__
    known = fields.get("status_code") != 0 and any(key in fields for key in _ERROR["keys"])
    return {"error": dict(fields)} if known else None
