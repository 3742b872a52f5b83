"""Whose error it is: a model's, another service's, or the program's own.

The package of a class tells. A model's SDK raises for a model. A general HTTP client raises for
whoever was asked: the request tells whom, or the answer where that speaks of models. Where neither
names another service it is the model's, as an error that is passed on costs the call. A class of
any other package is the program's own or a tool's, and its words alone are no provider's; its
status is, because in-house clients are common.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from honcho_fallback._classify._read import called, frames_of, plain
from honcho_fallback._classify._tables import ENDINGS, ERRNOS, NAMES, ORIGINS, WORDS, Row
from honcho_fallback._classify._texts import Vocabulary
from honcho_fallback._values.failure import SEVERITY
from honcho_fallback._values.failure import FailureKind as Kind

_SDKS, _CLIENTS, _FRAMEWORKS = (WORDS[name] for name in ("sdks", "clients", "frameworks"))
_KNOWN = _SDKS | _CLIENTS | _FRAMEWORKS
_MODELS = _SDKS.keys() | _FRAMEWORKS.keys()
# Services are reached by the name of their library, too; these two name hosts of everything.
_LOCAL = {key for key, row in ORIGINS.items() if row.kind is Kind.LOCAL and key.isalpha()}
_VOCABULARY = Vocabulary(
    {name: [*WORDS[name]] for name in ("subject", "owner", "services")}
    | {"addresses": [*WORDS["resources"], *_LOCAL - {"docker", "kubernetes"}]}
)
_MODEL, _OWNER, _SERVICE, _ADDRESS = 1, 2, 4, 8
_HOSTS, _VERSIONED = WORDS["hosts"], WORDS["versioned_endpoints"]
_ENDPOINT = re.compile("|".join(WORDS["endpoints"]).replace("*", r"[\w-]*"))
_MACHINE = Row(Kind.LOCAL, "an OSError of the machine itself")
_ERRNO = re.compile(r"\[Errno (\d{1,4})\]")
_OTHER_ADDRESS = Row(Kind.LOCAL, "an address of another service than a model's")
_OTHER_WORDS = Row(Kind.LOCAL, "the message names a service that is no model's")
_VERSION = re.compile(r"v\d\w*|openai|anthropic")
_READS_JSON = frozenset({"model_validate_json", "validate_json"})
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})  # methods that bring no prompt
_URL = re.compile(r"([\w+]+)://(?:[^/?#@]*@)?([^/?#:]+)[^/?#]*([^?#]*\??)")
# A field of a request's JSON that only a model is asked with; it stands near the beginning.
_ASKING = re.compile(rf"[\"'](?:{'|'.join(WORDS['asking'])})[\"']\s?:")
# An address as clients write it into their messages; some name the host, and perhaps a path.
_IN_TEXT = re.compile("|".join(WORDS["addresses_in_texts"]))


@lru_cache(maxsize=512)
def origin(cls: type) -> Row | None:
    """Find the row that decides whatever an instance carries; a cancellation comes first."""
    if not issubclass(cls, Exception | BaseExceptionGroup):
        return ORIGINS["BaseException"]
    keys = (key for c in cls.__mro__ for key in _places(c))
    rows = [ORIGINS[key] for key in keys if key in ORIGINS]
    return min(rows, key=lambda row: SEVERITY[row.kind], default=None)


def _places(cls: type) -> tuple[str, ...]:
    """Name where a class is: package, its part, module, and the package with the class."""
    module = cls.__module__
    top, _, rest = module.partition(".")
    return (top, f"{top}.{rest.partition('.')[0]}", module, f"{top}.{cls.__name__}")


@lru_cache(maxsize=512)
def class_row(cls: type) -> Row | None:
    """Find the row of the nearest class that a table names, by its whole name or by its end."""
    ends = may_speak(cls)
    for c in cls.__mro__:
        row = NAMES.get(_places(c)[-1]) or NAMES.get(c.__name__)
        if row is None and ends:
            row = next((row for row in ENDINGS if c.__name__.endswith(row.name)), None)
        if row is not None:
            return row
    return None


def of_errno(exc: OSError, message: str) -> Row | None:
    """Judge an OSError by its number; one without a number says nothing itself.

    What tries several addresses raises such a one: anyio and trio from the errors of all, asyncio
    with their numbers in its text. One that is the machine's own comes before the network's.
    """
    numbers = [exc.errno] if exc.errno is not None else map(int, _ERRNO.findall(message))
    rows = [ERRNOS.get(number, _MACHINE) for number in numbers]
    return min(rows, key=lambda row: SEVERITY[row.kind], default=None)


@lru_cache(maxsize=512)
def may_speak(cls: type) -> bool:
    """Tell whether the words of a class may be a provider's, by its package or its own name."""
    if cls.__module__ == "builtins" or not _KNOWN.keys().isdisjoint(_packages(cls)):
        return True
    return any(_speaks(f"{c.__module__}.{c.__name__}", _OWNER) for c in cls.__mro__)


@lru_cache(maxsize=512)
def is_sdk(cls: type) -> bool:
    """Tell whether a class is of a model's SDK, which asks nobody else."""
    return not _SDKS.keys().isdisjoint(_packages(cls))


def reads_answer(exc: BaseException) -> bool:
    """Tell whether a model's SDK or a framework raised this while it read an answer.

    Its innermost functions are theirs, and one of them was given an answer, or has its response.
    What they raise before they ask is the program's mistake, and so is what a function of the
    program raises; but whoever has pydantic read JSON was given a text, and who decodes for a
    client was sent its bytes.
    """
    for frame, module in reversed(frames_of(exc)):
        code, (top, _, rest) = frame.f_code, module.partition(".")
        if top == "pydantic":
            if code.co_name in _READS_JSON:
                return True
            continue
        places = (top, f"{top}.{rest.partition('.')[0]}")
        if isinstance(exc, UnicodeDecodeError):
            return not _KNOWN.keys().isdisjoint(places)
        if _MODELS.isdisjoint(places):
            return False
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        has_response = "response" in code.co_varnames and frame.f_locals.get("response")
        if has_response or not WORDS["answer_arguments"].keys().isdisjoint(names):
            return True
    return False


def speaks_of_models(text: str) -> bool:
    return _speaks(text, _MODEL)


def other_service(exc: BaseException, message: str, text: str, *, has_status: bool) -> Row | None:
    """Say why an error is another service's, or None: only a general client's may be one.

    Its request brings no prompt, or its address is called after such a service and the answer
    does not speak of models. Where there is no address, the words say it. The message is its own
    text or that of its body; the text has the codes, too, and is read by its words.
    """
    cls: Any = type(exc)
    # A general client's class, or a built-in one, which quotes those.
    anybodys = cls.__module__ == "builtins" or not _CLIENTS.keys().isdisjoint(_packages(cls))
    if not (anybodys and not is_sdk(cls)) and (has_status or may_speak(cls)):
        return None
    method, address, content = _request(exc, message)
    parts = _URL.match(address)
    if parts is None:
        return _OTHER_WORDS if _speaks(text, _SERVICE) and not speaks_of_models(text) else None
    scheme, host, path = map(str.lower, parts.groups())
    if _is_inference(host, re.split("[/:?]", path)) or _ASKING.search(content):
        return None
    # Where nobody knows the method, a query or a file is what was to be read.
    is_read = method.upper() in _BODILESS if method else re.search(r"(\?|\.[a-z]{2,5})$", path)
    names = re.sub("[^a-z]+", " ", f"{scheme} {host} {path}")
    ends_there = path.rpartition("/")[2] in WORDS["collections"]
    is_named = (ends_there or _speaks(names, _SERVICE | _ADDRESS)) and not speaks_of_models(text)
    return _OTHER_ADDRESS if is_read or is_named else None


@lru_cache(maxsize=512)
def _packages(cls: type) -> frozenset[str]:
    return frozenset(place for c in cls.__mro__ for place in _places(c)[:2])


def _speaks(text: str, groups: int) -> bool:
    return any(sentence & groups for sentence in _VOCABULARY.sentences(text))


def _request(exc: BaseException, message: str) -> tuple[str, str, str]:
    """Find method, address and content of the request that failed, empty where nobody says."""
    own: dict[str, Any] = plain(exc, "__dict__") or {}
    answers = [own.get("response"), own.get("_response")]
    requests = [own.get(name) for name in ("_request", "request", "request_info")]
    requests += [plain(answer, "request") for answer in answers]
    for holder in (*requests, *answers, exc):
        url = plain(holder, "url")
        if type(url).__name__ == "URL":  # httpx's and yarl's
            url = called(url, "__str__")
        if isinstance(url, str):
            method = plain(holder, "method")
            if not isinstance(method, str):  # an answer, whose content may not be here yet
                return "", url, ""
            content = plain(holder, "content") or plain(holder, "body")
            return method, url, repr(content[:2000]) if isinstance(content, str | bytes) else ""
    match = _IN_TEXT.search(message)
    if match is None:
        return "", "", ""
    method, url, host, path = match.groups()
    return method or "", url or f"http://{host}{path or ''}", ""


def _is_inference(host: str, steps: list[str]) -> bool:
    # Without its last label, such as "ai", which many services have that are no model's.
    labels = re.split(r"[.-]", host.rpartition(".")[0] or host)
    return not _HOSTS.keys().isdisjoint(labels) or any(
        bool(_ENDPOINT.fullmatch(step) or (step in _VERSIONED and _VERSION.fullmatch(before)))
        for before, step in zip(["", *steps], steps, strict=False)
    )
