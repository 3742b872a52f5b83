"""``honcho-fallback explain --from-log``: what the errors in a log come to, and what is not known.

Theory of operation: lines come one by one, so that a file may be of any size (``_lines``). A line
is JSON, a part of a traceback, or a text (``_errors_in``). What looks like an error becomes an
exception of that name with that status and body (``_error``), and the classifier judges it as it
would judge the real one, but for the real one's base classes.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import json
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from rich.text import Text

from honcho_fallback import Failure, FailureKind, FallbackConfig, call_metadata, classify
from honcho_fallback.cli._facts import Facts, ProviderError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

_LINE_CAP = 4 << 20  # bytes; a longer line is cut
_TEXT_CAP = 20_000  # characters of a line that are looked at, where it is no JSON
_MOST = 1000  # different errors that are kept apart
_SHOWN = 20
_NEXT_FALLBACKS = {FailureKind.CONTEXT_OVERFLOW, FailureKind.PAYLOAD_TOO_LARGE}
# What the classifier says where nothing decides.
_UNKNOWN = classify(Exception()).reason
_OTHERS = Exception("others, of too many sorts to keep apart")

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_CONTAINER = re.compile(r"^[\w.-]{1,100} +\| ")  # docker compose writes it before each line
_MARGIN = re.compile(r"^ +[|+] ?")  # of a group's traceback
_TRACEBACK = "Traceback (most recent call last)"
_LINK = re.compile(r"(The above exception was the direct cause)|During handling of the above exc")
_MEMBERS = re.compile(r"\(\d+ sub-exceptions?\)$")
_EXCEPTION = re.compile(
    r"(?!(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\b)((?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?::\s?(.*))?$"
)
_ENDINGS = ("Error", "Exception", "Timeout", "Exceeded")
_NAMED = re.compile(
    r"(?<![\w.])((?:[A-Za-z_]\w{0,99}\.){0,9}"
    r"(?:[A-Z]\w{0,99}(?:Error|Exception|Timeout|Exceeded)|Timeout))(?::\s|\(|$)(.*)"
)
# As the SDKs, httpx and requests write it.
_STATUS = re.compile(
    r"\b(?:[Ee]rror code: |(?:Client|Server) error ')([45]\d\d)\b.*"
    r"|\b([45]\d\d) (?:Client|Server) Error: .*"
)
_DOCUMENT = re.compile(r"\{\s*[\"'](?:error|type[\"']\s*:\s*[\"']error)[\"'].*")
_LEVEL = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b[\s:|\]-]*(.*)")
_ERRNO = re.compile(r"\[Errno (\d{1,5})\]")
_NUMBERS = re.compile(r"\d+|0x[0-9a-f]+|[0-9a-f-]{12,}")

_NAME_KEYS = ("exception.type", "error_class", "exc_type", "exception_class", "error_type")
_STATUS_KEYS = ("status_code", "http_status", "statusCode", "status", "error_code", "code")
_BODY_KEYS = ("body", "error_body", "response")
_ERROR_KEYS = (
    *("exception.stacktrace", "traceback", "stacktrace", "stack_trace", "exc_info", "exc_text"),
    *("exception", "error_str", "error_message", "exception.message", "statusMessage"),
    *("status_message", "error", "body"),
)
_MESSAGE_KEYS = ("message", "msg", "event", "detail")
_LEVEL_KEYS = ("level", "levelname", "severity", "log.level")


class Found(NamedTuple):
    """Hold an error of a log, and its kind where a record has it."""

    error: BaseException
    kind: FailureKind | None = None


@dataclass(slots=True)
class Row:
    """Count errors that mean the same for the same reason."""

    failure: Failure
    example: str
    count: int = 0

    def fields(self) -> dict[str, Any]:
        """Return the row for a machine."""
        return {
            "count": self.count,
            "kind": self.failure.kind.value,
            "switches": _switches(self.failure.kind),
            "reason": self.failure.reason,
            "by_rule": self.failure.by_rule,
            "example": self.example,
        }


@dataclass(slots=True)
class Tally:
    """Count what is in a log.

    Args:
        config: Its rules judge first.
    """

    config: FallbackConfig
    lines: int = 0
    interrupted: bool = False
    rows: dict[tuple[object, ...], Row] = field(default_factory=dict[tuple[object, ...], Row])

    def read(self, file: Iterable[bytes] | IO[bytes]) -> None:
        """Read a log to its end, or until Ctrl-C."""
        try:
            for found in _errors_in(self._counted(_lines(cast("IO[bytes]", file)))):
                self._add(found)
        except KeyboardInterrupt:
            self.interrupted = True

    def known(self) -> list[Row]:
        """List what was understood, the most frequent first."""
        return self._sorted(unknown=False)

    def unknown(self) -> list[Row]:
        """List what was not."""
        return self._sorted(unknown=True)

    def _sorted(self, *, unknown: bool) -> list[Row]:
        rows = [row for row in self.rows.values() if _is_unknown(row.failure) is unknown]
        return sorted(rows, key=lambda row: -row.count)

    def _counted(self, lines: Iterator[str]) -> Iterator[str]:
        try:
            for line in lines:
                self.lines += 1
                yield line
        except KeyboardInterrupt:  # while it waited for a line: the error before is complete
            self.interrupted = True

    def _add(self, found: Found) -> None:
        failure = classify(found.error, rules=self.config.rules)
        if found.kind is not None and not failure.by_rule:
            status, code = failure.status, failure.code
            failure = Failure.of(
                found.kind, status=status, code=code, reason="as recorded", error=failure.error
            )
        key: tuple[object, ...] = (failure.kind, failure.reason)
        if _is_unknown(failure):
            key = (failure.error, _NUMBERS.sub("#", str(found.error)[:200]))
            if key not in self.rows and len(self.rows) >= _MOST:
                key, found = ("others",), Found(_OTHERS)
        if key not in self.rows:
            error = found.error
            example = str(error) if error is _OTHERS else _example(failure, error)
            self.rows[key] = Row(failure, example)
        self.rows[key].count += 1


def read_log(source: str, config: FallbackConfig) -> Tally:
    """Read a log.

    Args:
        source: A file's path, or ``-`` for standard input.
        config: Its rules judge first.

    Raises:
        OSError: The file cannot be read.
    """
    tally = Tally(config)
    if source == "-":
        tally.read(sys.stdin.buffer)
    else:
        with Path(source).open("rb") as file:
            tally.read(file)
    return tally


def to_json(tally: Tally) -> str:
    """Return what was counted as a JSON object."""
    known, unknown = ([row.fields() for row in rows] for rows in (tally.known(), tally.unknown()))
    document = {
        "lines": tally.lines,
        "errors": sum(row.count for row in tally.rows.values()),
        "kinds": known,
        "not_understood": [{"count": row["count"], "example": row["example"]} for row in unknown],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def show(tally: Tally, name: str, console: Console) -> None:
    """Print what was counted for a person: each row, and below it an example."""
    out: Any = sys.stdout
    if hasattr(out, "reconfigure"):
        out.reconfigure(errors="backslashreplace")  # a message may be in any script
    known, unknown = tally.known(), tally.unknown()
    errors = sum(row.count for row in tally.rows.values())

    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style), soft_wrap=True)

    line(f"{name}: {tally.lines:,} lines, {errors:,} errors")
    if not errors:
        line("Tracebacks, JSON lines and texts such as 'Error code: 429 - {...}' would be read.")
    if known:
        line(f"\n{'count':>7}  {'kind':<18}  {'switch?':<13}  why", "bold")
    for row in known:
        failure = row.failure
        switches = _switches(failure.kind)
        line(f"{row.count:>7,}  {failure.kind.value:<18}  {switches:<13}  {failure.reason}")
        line(f"{'':>7}  {row.example}", "dim")
    if unknown:
        line("\nnot understood, so taken for the program's own: nobody else is asked", "bold")
    for row in unknown[:_SHOWN]:
        line(f"{row.count:>7,}  {row.example}")
    if len(unknown) > _SHOWN:
        rest = unknown[_SHOWN:]
        line(f"{sum(row.count for row in rest):>7,}  others, of {len(rest):,} sorts; see --json")
    if unknown:
        line("Say what they mean in a file for --rules and FallbackConfig(rules=...).")


def _is_unknown(failure: Failure) -> bool:
    return failure.kind is FailureKind.LOCAL and failure.reason == _UNKNOWN


def _switches(kind: FailureKind) -> str:
    """Say whether the default policy asks the fallback."""
    if kind in _NEXT_FALLBACKS:
        return "larger window"
    return "yes" if kind in FallbackConfig().fallback_on else "no"


def _example(failure: Failure, error: BaseException) -> str:
    """Return an error in one line without anything that looks like a secret."""
    name = None if failure.error == ProviderError.__name__ else failure.error
    facts = (name, failure.status, failure.code)
    head = " ".join(str(fact) for fact in facts if fact is not None)
    text = f"{head}: {failure.provider_message or error}"
    shown = call_metadata({"example": f"{text.strip(': ') or 'no message'} "}) or {}  # no one word
    return str(shown["example"])


def _lines(file: IO[bytes]) -> Iterator[str]:
    while line := file.readline(_LINE_CAP):
        rest = line
        while len(rest) == _LINE_CAP and not rest.endswith(b"\n"):
            rest = file.readline(_LINE_CAP)
        # Windows' shells write UTF-16; without its zero bytes it is readable.
        text = line.replace(b"\0", b"").decode("utf-8", "replace").strip("\ufeff\r\n")
        yield _CONTAINER.sub("", _COLOUR.sub("", text))


def _errors_in(lines: Iterable[str]) -> Iterator[Found]:
    """Yield each error once: a chain of causes is one, and so are a line and its traceback."""
    scanner = _Scanner()
    for line in lines:
        yield from scanner.read(line)
    yield from scanner.flush()


class _Scanner:
    """Read a log line by line; an error waits for the line that shows that it is complete."""

    def __init__(self) -> None:
        self.waiting: Found | None = None
        self.is_headline = False  # a traceback that follows is of the same error
        self.link = ""  # to the traceback that follows: __cause__ or __context__
        self.inside = False

    def flush(self) -> Iterator[Found]:
        """Yield what waits."""
        if self.waiting is not None:
            yield self.waiting
        self.waiting, self.link = None, ""

    def read(self, line: str) -> Iterator[Found]:
        """Take a line; yield what it completes."""
        documents = _documents(line)
        if documents:
            yield from self.flush()
            self.inside = False
            for document in documents:
                yield from _errors_of(document)
            return
        text = line[:_TEXT_CAP]
        if _TRACEBACK in text:
            if not (self.is_headline or self.link):
                yield from self.flush()
            self.inside = True
        elif self.inside or _MARGIN.match(text):
            yield from self.read_traceback(_MARGIN.sub("", text), text)
        else:
            yield from self.read_text(text)

    def read_traceback(self, text: str, whole: str) -> Iterator[Found]:
        """Take a line of a traceback; its end is the exception."""
        match = None if _MEMBERS.search(text) else _EXCEPTION.match(text)
        if match is not None:
            error = _error(match[1], match[2] or "")
            if self.waiting is not None and self.link:
                setattr(error, self.link, self.waiting.error)
                self.waiting = None
            if not self.is_headline:
                yield from self.flush()
            self.waiting, self.is_headline, self.link = Found(error), False, ""
            self.inside = False
        elif text[:1].strip() and text == whole and not _MEMBERS.search(text):
            self.inside = False  # it was cut off
            yield from self.read_text(text)

    def read_text(self, text: str) -> Iterator[Found]:
        """Take a line outside of a traceback."""
        link = _LINK.match(text) if self.waiting is not None and not self.is_headline else None
        if link is not None:
            self.link = "__cause__" if link[1] else "__context__"
        elif text.strip():
            yield from self.flush()
            self.waiting, self.is_headline = _found_in(text), True


def _found_in(text: str) -> Found | None:
    """Find an error in a line of text."""
    if "agent=" in text and "call_id=" in text:
        return None  # a line of our own: the framework's or the program's has the error itself
    match = _NAMED.search(text) if any(map(text.__contains__, _ENDINGS)) else None
    if match is not None:
        return Found(_error(match[1], match[2].strip("(\"' ")))
    for pattern in (_STATUS, _DOCUMENT, _LEVEL):
        match = pattern.search(text)
        if match is not None:
            return Found(_error("", match[1] if pattern is _LEVEL else match[0]))
    return None


def _documents(line: str) -> list[dict[str, Any]]:
    """Return the JSON objects that a line is, if it is any."""
    parsed: object = None
    if line[:1] in {"{", "["} and line.rstrip()[-1:] in {"}", "]"}:
        with suppress(ValueError, RecursionError):
            parsed = json.loads(line)
    entries = cast("list[object]", parsed) if isinstance(parsed, list) else [parsed]
    return [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)]


def _errors_of(document: dict[str, Any]) -> Iterator[Found]:
    """Yield the errors of a JSON line: a record of this package, or anybody's log."""
    if isinstance(document.get("attempts"), list) and "call_id" in document:
        yield from _recorded(document["attempts"])
        return
    inner = (document.get(name) for name in ("error_information", "attributes"))
    places: list[dict[str, Any]] = [document, *(one for one in inner if isinstance(one, dict))]
    name = _first_text(places, _NAME_KEYS)
    status = next(
        filter(None, (_status(one.get(key)) for one in places for key in _STATUS_KEYS)), None
    )
    body = next((one for key in _BODY_KEYS if _is_error_body(one := document.get(key))), None)
    body = document if body is None and _is_error_body(document) else body
    text = _first_text(places, _ERROR_KEYS)
    level = _first_text(places, _LEVEL_KEYS).upper()
    message = _first_text(places, _MESSAGE_KEYS)
    is_error = bool(name or status or body or text) or document.get("status") == "failure"
    if not is_error and level not in {"ERROR", "CRITICAL", "FATAL"}:
        named = _found_in(message)
        yield from () if named is None else (named,)
        return
    text = text or message
    errors = [found.error for found in _errors_in(text.splitlines())]
    error = errors[-1] if errors else _error(name, text)
    if name and type(error) is ProviderError:
        error = _error(name, text)
    if isinstance(error, ProviderError):
        own: Any = error  # what the text says goes before what stands around it
        facts = _facts(own.status_code or status, body or own.body, document.get("headers"))
        error.__dict__.update(ProviderError(facts).__dict__)
    yield Found(error)


def _recorded(attempts: list[Any]) -> Iterator[Found]:
    for attempt in attempts:
        with suppress(ValueError, AttributeError):  # of another version, or no record at all
            kind = FailureKind(attempt["kind"]) if attempt.get("kind") else None
            if kind is not None:
                code = attempt.get("code")
                body = {"error": {"code": code}} if code else None
                facts = _facts(_status(attempt.get("status")), body)
                error = _class_named(str(attempt.get("error") or ""))(facts)
                error.args = ()  # nothing was written down of it
                yield Found(error, kind)


def _first_text(places: list[dict[str, Any]], keys: tuple[str, ...]) -> str:
    texts = (place.get(key) for key in keys for place in places)
    return next((text for text in texts if text and isinstance(text, str)), "")


def _status(value: object) -> int | None:
    with suppress(ValueError):
        number = int(value) if isinstance(value, int | str) else 0
        return number if 400 <= number <= 599 else None
    return None


def _is_error_body(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    body = cast("dict[str, object]", value)
    return isinstance(body.get("error"), dict) or body.get("type") == "error"


def _error(name: str, message: str) -> BaseException:
    """Build the exception that a log shows by its class's name and its message."""
    module, _, simple = name.rpartition(".")
    if simple == "CancelledError":
        return asyncio.CancelledError()
    known: Any = getattr(builtins, simple, None) if module in {"", "builtins"} else None
    if isinstance(known, type) and issubclass(known, BaseException):
        number = _ERRNO.match(message)
        with suppress(TypeError):
            return known(int(number[1]), message) if number else known(message)
    stated = _STATUS.search(message)
    facts = _facts(
        _status(stated[1] or stated[2]) if stated else None, _parsed_body(message) or message
    )
    error = _class_named(name)(facts)
    error.args = (message,)
    return error


def _facts(status: int | None, body: object, headers: object = None) -> Facts:
    values = cast("dict[str, object]", headers) if isinstance(headers, dict) else {}
    plain = {
        str(key): value for key, value in values.items() if isinstance(value, str | int | float)
    }
    return Facts(status=status, body=body, headers=plain)


@lru_cache(maxsize=512)
def _class_named(name: str) -> type[ProviderError]:
    module, _, simple = name.rpartition(".")
    return type(simple, (ProviderError,), {"__module__": module}) if simple else ProviderError


def _parsed_body(message: str) -> dict[str, Any] | None:
    """Read the document in a message, as JSON or as Python writes a dict."""
    start, end = message.find("{"), message.rfind("}") + 1
    text = message[start:end]
    if start < 0 or not text or len(text) > _TEXT_CAP:
        return None
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            body: object = parse(text)
            return cast("dict[str, Any]", body) if isinstance(body, dict) else None
    return None
