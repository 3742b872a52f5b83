"""The user's own rules: read and checked once, and asked before the package's own."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError

from honcho_fallback._classify._facts import TEXT_CAP, Facts, as_status
from honcho_fallback._classify._read import called
from honcho_fallback._values.errors import FallbackConfigError, nearest, unknown_name
from honcho_fallback._values.failure import FailureKind
from honcho_fallback.redaction import redact

_CONDITIONS = ("status", "code", "error", "text")
# Under which alias a rule takes its source: no key of a file is called so.
_SOURCE = "(source)"
_FIX = "pass the path of a TOML file, a dict, or a list of these"


def _listed(given: object) -> Sequence[object]:
    return cast("Sequence[object]", given) if isinstance(given, list | tuple) else (given,)


def _read_kind(value: object) -> FailureKind:
    kinds = [kind.value for kind in FailureKind if kind is not FailureKind.CANCELLED]
    if value == FailureKind.CANCELLED:
        raise ValueError("write another kind: only its caller cancels a call")
    if value not in kinds:
        raise ValueError(unknown_name(value if isinstance(value, str) else "", kinds))
    return FailureKind(value)


def _read_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("write pieces of the message")
    return value.lower()


def _read_reason(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError("write one line of text")
    return value


def _read_status(value: Any) -> int:
    if isinstance(value, str) or as_status(value) is None:
        raise ValueError("write HTTP statuses as numbers, 100 to 599")
    return int(value)


def _read_code(value: Any) -> str:
    code = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if as_status(code) is not None:
        raise ValueError("a number of 100 to 599 is a status: write it there")
    if not isinstance(code, str) or not code.strip():
        raise ValueError("write the provider's codes or types")
    return code.lower()


def _read_error(value: Any) -> str | type[BaseException]:
    if isinstance(value, type) and issubclass(value, BaseException):
        return value
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(
            "write class names, such as BudgetError or acme.errors.BudgetError, or pass classes"
        )
    return value.removeprefix("builtins.")


_MANY = BeforeValidator(_listed)
_NAME = re.compile(r"(?!\d)\w+(\.(?!\d)\w+)*")
_Texts = Annotated[tuple[Annotated[str, PlainValidator(_read_text)], ...], _MANY]
_Codes = Annotated[tuple[Annotated[str, PlainValidator(_read_code)], ...], _MANY]
_Errors = Annotated[tuple[Annotated[Any, PlainValidator(_read_error)], ...], _MANY]
_Statuses = Annotated[tuple[Annotated[int, PlainValidator(_read_status)], ...], _MANY]


class Rule(BaseModel):
    """Say what errors mean that fulfil all conditions that are given."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)  # as FallbackConfig

    kind: Annotated[FailureKind, BeforeValidator(_read_kind)]
    reason: Annotated[str, PlainValidator(_read_reason)] = ""  # why, in the user's words
    status: _Statuses = ()
    code: _Codes = ()  # of the provider's codes and types
    # The class or a base of it: a class, or its name, perhaps after its package.
    error: _Errors = ()
    text: _Texts = ()  # the message has one of these in it
    unless: _Texts = ()  # and none of these
    default: Annotated[bool, Field(strict=True)] = False  # only what nothing else explains
    transient: Annotated[bool | None, Field(strict=True)] = None  # None: as for the kind
    # Seconds to wait, in place of the provider's word.
    retry_after: Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)] | None = None
    source: str = Field("", validation_alias=_SOURCE)  # such as ``rule 2 of rules.toml``


_Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Rule
RulesSource: TypeAlias = _Source | Sequence[_Source] | None

_KEYS = tuple(key for key in Rule.model_fields if key != "source")


def first_fitting(
    rules: Sequence[Rule],
    exc: BaseException,
    facts: Facts,
    status: int | None,
    *,
    default: bool = False,
) -> Rule | None:
    """Find the first of the user's rules, or of those by default, that fits an exception."""
    statuses, codes, text = {status, facts.status, facts.error}, facts.codes, None
    cls: Any = type(exc)
    for rule in (one for one in rules if one.default is default):
        if rule.status and statuses.isdisjoint(rule.status):
            continue
        if rule.code and not any(code in rule.code for code in codes):
            continue
        if rule.error and not any(_is_named(cls, name) for name in rule.error):
            continue
        if rule.text or rule.unless:
            text = _text_of(exc, facts) if text is None else text
            if rule.text and not any(map(text.__contains__, rule.text)):
                continue
            if any(map(text.__contains__, rule.unless)):
                continue
        return rule
    return None


def require_loaded(rules: Sequence[Rule]) -> None:
    """Refuse what was not read and checked: a path would be read at each failure."""
    if not isinstance(rules, tuple) or not all(isinstance(rule, Rule) for rule in rules):  # pyright: ignore[reportUnnecessaryIsInstance] # users without a type checker
        fix = "pass those of a config: FallbackConfig(rules=...).rules"
        raise FallbackConfigError.about("rules", f"got a {type(rules).__name__}", fix)


def load_rules(given: RulesSource) -> tuple[Rule, ...]:
    """Read and check rules: those of TOML files, dicts, and rules that are loaded.

    Args:
        given: A path, a dict, a rule, a list of these, or None.

    Raises:
        FallbackConfigError: A file or a rule is wrong; a line for each mistake.
    """
    read: list[Rule | FallbackConfigError] = []
    for number, source in enumerate(() if given is None else _listed(given), start=1):
        try:
            read += _rules_of(source, number)
        except FallbackConfigError as error:
            read.append(error)
    if problems := [str(one) for one in read if not isinstance(one, Rule)]:
        raise FallbackConfigError("\n".join(problems))
    return tuple(one for one in read if isinstance(one, Rule))


def _is_named(cls: type, name: str | type) -> bool:
    """Tell whether a class or a base is one, or has its name: with a package or without."""
    if isinstance(name, type):
        return issubclass(cls, name)
    package, dot, own = name.rpartition(".")
    return any(
        one.__name__ == own and f"{one.__module__}.".startswith(package + dot)
        for one in cls.__mro__
    )


def _text_of(exc: BaseException, facts: Facts) -> str:
    """Return what the provider wrote and what the exception shows: users read either in a log."""
    shown = called(exc, "__str__")
    return f"{facts.message}\n{shown[:TEXT_CAP] if isinstance(shown, str) else ''}".lower()


def _rules_of(source: object, number: int) -> Iterable[Rule | FallbackConfigError]:
    """List the rules of a source, and in place of one that is wrong what is."""
    if isinstance(source, Rule):
        return [source]
    if isinstance(source, Mapping):
        raw = dict(cast("Mapping[str, Any]", source))
        origin = raw.pop("source", f"rule {number} given in Python")  # model_dump writes it
        return [_rule(raw, f"rules: rule {number}", str(origin))]
    path = os.fspath(source) if isinstance(source, os.PathLike) else source
    if not path or not isinstance(path, str):
        problem = "got an empty path" if path == "" else f"got a {type(path).__name__}"
        raise FallbackConfigError.about("rules", problem, _FIX)
    document = _read_toml(path)
    problems: list[str] = []
    for key in sorted(document.keys() - {"rule"}):
        guess = "did you mean [[rule]]? " if nearest(key, ["rule"]) else ""
        problems.append(f"{path}: {key}: no such key; {guess}write each rule as [[rule]]")
    entries: Any = document.get("rule", [])
    if not isinstance(entries, list) or not all(type(one) is dict for one in entries):
        problems.append(f"{path}: rule: it is no list of tables; write each rule as [[rule]]")
    elif not entries and not problems:
        problems.append(f"{path}: it has no rule; add a [[rule]], or do not name the file")
    if problems:
        raise FallbackConfigError("\n".join(problems))
    name = Path(path).name
    return [
        _rule(entry, f"{path}: rule {number}", f"rule {number} of {name}")
        for number, entry in enumerate(entries, start=1)
    ]


def _read_toml(path: str) -> dict[str, Any]:
    try:
        # Windows' editors write a mark before UTF-8.
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        problem = f"got {path}: {error.strerror or 'it cannot be read'}"
        fix = f"check the path, which stands for {Path(path).absolute()}"
        raise FallbackConfigError.about("rules", problem, fix) from None
    except ValueError as error:  # other encodings, and a path with a NUL, too
        raise FallbackConfigError.about(path, f"no TOML: {error}", "correct it") from None


def _rule(raw: Mapping[str, Any], where: str, source: str) -> Rule | FallbackConfigError:
    reason = raw.get("reason")
    where = f"{where} ({redact(reason)})" if isinstance(reason, str) else where
    try:
        rule = Rule.model_validate({**raw, _SOURCE: source})
    except ValidationError as error:
        return FallbackConfigError.invalid(error, where, _KEYS)
    if not any(getattr(rule, name) for name in _CONDITIONS):
        problem = "there are none, so that it would fit every error"
        fix = f"give one of {', '.join(_CONDITIONS)}"
        return FallbackConfigError.about(f"{where}: conditions", problem, fix)
    return rule
