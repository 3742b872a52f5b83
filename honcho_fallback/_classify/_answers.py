"""Say what fails under HTTP 200: bodies and streams that no SDK raises for.

The shapes are a table of paths. Objects are read through what they hold, never through their
properties, and only if their class comes from a library that the table names.
"""

# What is read here has whatever shape a stranger gave it; what comes out is typed.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

from honcho_fallback._classify import classify
from honcho_fallback._classify._tables import by_key, frozen, read
from honcho_fallback._core.failure import Failure


class Shape(NamedTuple):
    """Say where answers of one shape keep what they say; the file says what the fields mean."""

    values: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    at: str = ""
    inside: tuple[str, ...] = ()
    error: tuple[str, ...] = ()
    finish: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    ends: bool = False


_TABLES = read("responses")
_MODULES, _TEXTS, _SILENT = (frozenset(_TABLES[key]) for key in ("modules", "texts", "silent"))
_ERROR = _TABLES["error"]
BROKEN, EMPTY = by_key(_TABLES["broken"]), by_key(_TABLES["empty"])
_SIGNS = EMPTY | BROKEN
_BODIES = [frozenset(keys) for keys in _ERROR["bodies"]]
SHAPES = tuple(Shape(**frozen(row)) for row in _TABLES["shape"])
_BY_VALUE = {value: shape for shape in SHAPES for value in shape.values}
_BY_FIELD = {field: shape for shape in SHAPES for field in shape.fields}
_steps = lru_cache(maxsize=512)(partial(str.split, sep="."))


class ErrorInAnswer(Exception):  # noqa: N818 # its name is a row of the table
    """Stand for an error object inside an answer, so that the classifier can read it."""

    body: Any = None


def check_response(response: Any) -> Failure | None:
    """Say what is wrong with an answer that came under HTTP 200, or None; never raise.

    An empty text with an ordinary finish reason is a legal answer, and so is whatever this
    function does not know.

    Args:
        response: A response object of openai, anthropic, google-genai or LiteLLM, a message of
            LangChain, or a plain dict of such a shape; for a stream, the list or tuple of all its
            chunks or events.
    """
    cls = type(response)
    if cls is str or response is None:
        return None
    said, stream = _Said(), cls is list or cls is tuple
    try:
        for item in reversed(response) if stream else (response,):  # the end tells most
            if not said.read(item):
                return None
            if said.answered and said.finish and said.finish not in BROKEN and not said.body:
                return None
        return said.verdict(stream=stream)
    except Exception:  # noqa: BLE001  what cannot be read is not known
        return None


class _Said:
    """Gather what an answer says, over all its chunks."""

    # What most answers never say stands on the class.
    body: Any = None  # the error inside it
    finish = ""
    answered = refused = lacking = ends = False

    def read(self, item: Any) -> bool:
        """Read an answer or a chunk; False if it is neither."""
        cls: Any = type(item)
        plain = isinstance(item, dict)
        if not plain and not _is_known(cls):
            return False
        fields: dict[str, Any] = item if plain else item.__dict__
        self.body = self.body or _error(item, fields)
        shape = _shape(fields, plain=plain)
        if shape is None:
            return self.body is not None
        if shape.inside:
            return self.read(_first(item, shape.inside))
        part = _find(item, shape.at) if shape.at else item
        self.body = self.body or _document(_first(part, shape.error))
        self.finish = self.finish or _word(_first(part, shape.finish))
        if _word(_first(part, shape.blocked)):
            self.finish = "(blocked)"
        for path in shape.said:
            if not self.answered:
                self.hear(_find(part, path))
        if not self.answered:
            self.refused |= _first(part, shape.refused) is not None
            self.lacking |= bool(shape.needs) and _first(part, shape.needs) is None
        self.ends |= shape.ends
        return True

    def hear(self, content: Any) -> None:
        """Find out whether content holds a text, a call or anything else to use."""
        for block in content if isinstance(content, list) else (content,):
            if not block or isinstance(block, str):
                self.answered |= bool(block)
                continue
            kind, text = _find(block, "type"), _find(block, "text")
            if kind == "message":
                self.hear(_find(block, "content"))
            elif kind == "refusal":
                self.refused = True
            elif kind not in _SILENT and not (kind is None and _find(block, "thought")):
                self.answered |= bool(text) or (text is None and kind not in _TEXTS)

    def verdict(self, *, stream: bool) -> Failure | None:
        """Say what all of it means."""
        if self.body:
            error = ErrorInAnswer()
            error.body = self.body
            failure = classify(error)
            return failure._replace(reason=f"an error in the answer: {failure.reason}")
        signs = (
            self.finish,
            self.refused and "refusal",
            stream and self.ends and not self.finish and "(unended)",
            not stream and self.lacking and "(lacking)",
        )
        row = next(filter(None, map((BROKEN if self.answered else _SIGNS).get, signs)), None)
        return row and Failure.of(row.kind, reason=row.reason, error=ErrorInAnswer.__name__)


@lru_cache(maxsize=512)
def _is_known(cls: Any) -> bool:
    return any(base.__module__.partition(".")[0] in _MODULES for base in cls.__mro__)


def _shape(fields: dict[str, Any], *, plain: bool) -> Shape | None:
    for word in (fields.get("type"), fields.get("object")):
        if isinstance(word, str):
            shape = _BY_VALUE.get(word) or _BY_VALUE.get(f"{word.partition('.')[0]}.")
            if shape is not None:
                return shape
    sure = not plain or len(fields) == 1
    for name, shape in _BY_FIELD.items():
        if name in fields and (sure or not fields.keys().isdisjoint(shape.marks)):
            return shape
    return None


def _find(part: Any, path: str) -> Any:
    for step in _steps(path):
        if isinstance(part, dict):
            part = part.get(step)
        elif step == "0":
            part = part[0] if isinstance(part, list) and part else None
        elif part is not None:
            held = part.__dict__
            # What a class does not name; of LiteLLM's chunks everything.
            more = None if step in held else getattr(part, "__pydantic_extra__", None)
            part = (more or held).get(step)
    return part


def _first(part: Any, paths: tuple[str, ...]) -> Any:
    for path in paths:
        found = _find(part, path)
        if found is not None:
            return found
    return None


def _word(value: Any) -> str:
    # Google's are enums, and strings, too.
    known = isinstance(value, str) and not value.endswith("UNSPECIFIED")
    return str.lower(value) if known else ""


def _error(item: Any, fields: dict[str, Any]) -> Any:
    for name in _ERROR["names"]:
        error = _find(item, name)
        # A sentence alone may be anybody's field.
        if error and (not isinstance(error, str) or len(fields) == 1 or "choices" in fields):
            return _document(error)
    told = any(map(fields.keys().__ge__, _BODIES)) and not fields.get("success")
    return dict(fields) if told else None


def _document(error: Any) -> Any:
    if not error or isinstance(error, str):
        return error and {"error": error}
    fields = error if isinstance(error, dict) else error.__dict__
    told = fields.get("status_code") != 0 and any(key in fields for key in _ERROR["keys"])
    return {"error": dict(fields)} if told else None


def has_content(chunk: Any) -> bool:
    return bool(chunk)


def usage_of(answer: Any) -> None:
    return None
