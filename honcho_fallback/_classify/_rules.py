"""The user's own rules: read and checked once, and asked before the package's own."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)

from honcho_fallback._classify._facts import TEXT_CAP, Facts, as_status
from honcho_fallback._classify._read import called
from honcho_fallback._values.errors import FallbackConfigError
from honcho_fallback._values.failure import FailureKind

_FIX = "pass the path of a TOML file, a dict, or a list of these"
_NAME = re.compile(r"(?!\d)\w+(\.(?!\d)\w+)*")


def _listed(given: object) -> Sequence[object]:
    """Return a list as it is, and a value alone as a list of one."""
    return cast("Sequence[object]", given) if isinstance(given, list | tuple) else (given,)


def _read_kind(kind: FailureKind) -> FailureKind:
    if kind is FailureKind.CANCELLED:
        raise ValueError("write another kind: only its caller cancels a call")
    return kind


def _read_code(code: str) -> str:
    if as_status(code) is not None:
        raise ValueError("a number of 100 to 599 is a status: write it there")
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
_TEXT = Field(pattern=r"\S")
_Texts = Annotated[tuple[Annotated[str, _TEXT, AfterValidator(str.lower)], ...], _MANY]
_CODE = Field(pattern=r"\S", coerce_numbers_to_str=True)
_Codes = Annotated[tuple[Annotated[str, _CODE, AfterValidator(_read_code)], ...], _MANY]
_Errors = Annotated[tuple[Annotated[Any, PlainValidator(_read_error)], ...], _MANY]
_STATUS = Field(strict=True, ge=100, le=599)
_Statuses = Annotated[tuple[Annotated[int, _STATUS], ...], _MANY]


class Rule(BaseModel):
    """Say what errors mean that fulfil all conditions that are given."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)  # as FallbackConfig

    kind: Annotated[FailureKind, AfterValidator(_read_kind)]
    # Why, in the user's words: one line of a log.
    reason: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
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
    source: str = ""  # such as ``rule 2 of rules.toml``

    @model_validator(mode="after")
    def _require_a_condition(self) -> Self:
        if not (self.status or self.code or self.error or self.text):
            raise ValueError("it would fit every error; give one of status, code, error, text")
        return self


RulesFile: TypeAlias = str | os.PathLike[str]
RulesSource: TypeAlias = (
    RulesFile | Mapping[str, Any] | Rule | Sequence[RulesFile | Mapping[str, Any] | Rule] | None
)


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
        FallbackConfigError: A file or a rule is wrong; of each source the first that is.
    """
    rules: list[Rule] = []
    problems: list[str] = []
    for number, source in enumerate(() if given is None else _listed(given), start=1):
        try:
            rules += _rules_of(source, number)
        except FallbackConfigError as error:
            problems.append(str(error))
    if problems:
        raise FallbackConfigError("\n".join(problems))
    return tuple(rules)


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


def _rules_of(source: object, number: int) -> list[Rule]:
    """Read the rules of a source, or raise with a line for each mistake of the first wrong one."""
    if isinstance(source, Rule):
        return [source]
    if isinstance(source, Mapping):
        raw = cast("Mapping[str, Any]", source)
        return [_rule(raw, f"rules: rule {number}", f"rule {number} given in Python")]
    path = os.fspath(source) if isinstance(source, os.PathLike) else source
    if not path or not isinstance(path, str):
        problem = "got an empty path" if path == "" else f"got a {type(path).__name__}"
        raise FallbackConfigError.about("rules", problem, _FIX)
    return [
        _rule(entry, f"{path}: rule {number}", f"rule {number} of {Path(path).name}")
        for number, entry in enumerate(_read_toml(path), start=1)
    ]


def _read_toml(path: str) -> list[dict[str, Any]]:
    try:
        # Windows' editors write a mark before UTF-8.
        document = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        problem = f"got {path}: {error.strerror or 'it cannot be read'}"
        fix = f"check the path, which stands for {Path(path).absolute()}"
        raise FallbackConfigError.about("rules", problem, fix) from None
    except ValueError as error:  # other encodings, and a path with a NUL, too
        raise FallbackConfigError.about(path, f"no TOML: {error}", "correct it") from None
    entries: Any = document.get("rule")
    is_list = isinstance(entries, list) and all(type(one) is dict for one in entries)
    if len(document) != 1 or not is_list:
        problem = f"it holds {', '.join(document) or 'nothing'}"
        raise FallbackConfigError.about(path, problem, "write each rule as [[rule]]")
    return cast("list[dict[str, Any]]", entries)


def _rule(raw: Mapping[str, Any], where: str, source: str) -> Rule:
    try:
        return Rule.model_validate({"source": source, **raw})
    except ValidationError as error:
        raise FallbackConfigError.invalid(error, where, Rule.model_fields) from None
