"""The user's own rules: what they match, where they count, and what is said of wrong ones."""

from __future__ import annotations

import asyncio
import copy
import pickle
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from honcho_fallback import (
    AnswerRejected,
    Failure,
    FailureKind,
    FallbackConfig,
    FallbackConfigError,
    FallbackPolicy,
    Target,
    check_response,
    classify,
)
from honcho_fallback.simulate import load_policy
from honcho_fallback.testing import StatusError
from tests.helpers.errors import EXAMPLES, built, raised_from
from tests.helpers.own_rules import loaded
from tests.helpers.scripted import DRIVERS, pair, repeating

if TYPE_CHECKING:
    from pathlib import Path

OWN = EXAMPLES["own_rules"]
BUDGET = StatusError(403, code="TEAM_BUDGET")
FILE = """
[[rule]]
kind = "quota"
reason = "our gateway's team budget"
status = [403, 429]
code = ["TEAM_BUDGET"]
retry_after = 30

[[rule]]
kind = "overloaded"
text = "model is BUSY"
unless = ["for maintenance"]
"""


class BudgetError(Exception):
    """Stand for a gateway's own error."""


def judged(error: BaseException, *rules: Any) -> Failure:
    return classify(error, rules=loaded(*rules))


def rule(**values: Any) -> dict[str, Any]:
    return {"kind": "quota", **values}


def kinds(policy: FallbackPolicy, **replies: Any) -> list[Any]:
    """Return what the attempts of a call failed with."""
    run = policy.start()
    with suppress(Exception):  # the record says what happened
        policy.call(repeating(**replies).ask, run=run)
    return [attempt.kind for attempt in run.record.attempts]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(FILE, "utf-8")
    return path


def test_a_file_says_what_an_error_means(file: Path) -> None:
    """All of a rule's conditions have to hold; its file and its reason are in the reason."""
    rules = FallbackConfig(rules=file).rules
    failure = classify(BUDGET, rules=rules)
    assert (failure.kind, failure.status, failure.code) == ("quota", 403, "TEAM_BUDGET")
    assert failure.reason == "rule 1 of rules.toml: our gateway's team budget"
    assert (failure.by_rule, failure.retry_after, failure.transient) == (True, 30.0, False)
    for other in (StatusError(403, code="other"), StatusError(400, code="TEAM_BUDGET")):
        assert classify(other, rules=rules) == classify(other)
        assert not classify(other, rules=rules).by_rule


def test_a_file_comes_as_a_path_of_any_kind(file: Path) -> None:
    """A text, a path, or a list of them; the mark that Windows' editors write is no mistake."""
    for given in (str(file), file, [file], (str(file),)):
        assert len(FallbackConfig(rules=given).rules) == 2
    file.write_text(FILE, "utf-8-sig")
    assert len(FallbackConfig(rules=file).rules) == 2


def test_several_sources_are_asked_in_their_order(file: Path) -> None:
    """The first rule that fits decides, whichever it came from."""
    first = rule(kind="local", status=[403])
    rules = FallbackConfig(rules=[first, file]).rules
    of_file = ["rule 1 of rules.toml", "rule 2 of rules.toml"]
    assert [one.source for one in rules] == ["rule 1 given in Python", *of_file]
    assert classify(BUDGET, rules=rules).kind == "local"
    assert classify(BUDGET, rules=rules).reason == "rule 1 given in Python"


@pytest.mark.parametrize("row", OWN["fits"] + OWN["fits_not"], ids=lambda row: str(row["rule"]))
def test_what_fits(row: dict[str, Any]) -> None:
    """Any value of each condition; whole codes and classes, pieces of the message."""
    error = built(row) if len(row) > 1 else BUDGET
    assert judged(error, rule(**row["rule"])).by_rule is (row in OWN["fits"])


def test_a_message_that_cannot_be_read_fits_nothing() -> None:
    """An exception that raises when it is shown is judged all the same."""
    mute = type("MuteError", (Exception,), {"__str__": lambda _: 1 / 0})
    assert not judged(mute(), rule(text="x")).by_rule


def test_answers_of_a_rule() -> None:
    """The two answers are the kind's unless the rule has its own; the provider's wait counts."""
    waits = StatusError(429, retry_after=7)
    assert judged(waits, rule(status=429)).retry_after == 7
    assert judged(waits, rule(status=429, retry_after=2)).retry_after == 2
    assert judged(waits, rule(status=429, transient=True)).transient
    assert not judged(waits, rule(kind="overloaded", status=429, transient=False)).transient
    waits.response.headers["x-should-retry"] = "false"
    assert not judged(waits, rule(kind="overloaded", status=429)).transient
    # A rule's rate limit stays one, however long it lasts.
    long = StatusError(429, retry_after=7200)
    assert (classify(long).kind, judged(long, rule(kind="rate_limit", status=429)).kind) == (
        "quota",
        "rate_limit",
    )


def test_a_secret_is_blackened() -> None:
    """What a rule's failure shows of the message is redacted as any."""
    error: Any = StatusError(403)
    error.body = {"error": {"message": "bad key sk-proj-abcdefghijkl1234567890"}}  # gitleaks:allow
    failure = judged(error, rule(status=403))
    assert "bad key" in failure.provider_message
    assert "abcdefghijkl" not in failure.provider_message


def test_a_cancellation_is_never_a_rules() -> None:
    """Neither a text nor a class makes anything else of it, alone or in a group."""
    stop = rule(kind="server_error", error=["CancelledError", "BaseExceptionGroup"])
    for error in (
        asyncio.CancelledError("x"),
        BaseExceptionGroup("x", [asyncio.CancelledError()]),
        BaseExceptionGroup("x", [BUDGET, KeyboardInterrupt()]),
    ):
        assert judged(error, stop, rule(status=403)).kind == "cancelled"


def test_a_rule_may_hold_by_default() -> None:
    """It is for what nothing else explains: neither another rule nor the package's own facts."""
    default = rule(kind="server_error", error=BudgetError, default=True, transient=False)
    assert judged(BudgetError(), default, rule(error="BudgetError")).kind == "quota"
    failure = judged(BudgetError(), default)
    assert (failure.kind, failure.transient, failure.by_rule) == ("server_error", False, False)
    limited = type("LimitedError", (BudgetError,), {"status_code": 429})
    assert judged(limited(), default).kind == "rate_limit"
    assert judged(ValueError("x"), default).kind == "local"
    anything = rule(kind="server_error", error=Exception, default=True)
    assert judged(ValueError("x"), anything).kind == "server_error"
    assert judged(asyncio.CancelledError(), anything).kind == "cancelled"


def test_a_rule_takes_classes_as_well_as_names() -> None:
    """A class stands for those derived from it; what is no class of exceptions is refused."""
    derived = type("Derived", (BudgetError,), {})
    for own in (BudgetError, (KeyError, BudgetError)):
        assert judged(derived(), rule(error=own)).kind == "quota"
        assert judged(ValueError("x"), rule(error=own)).kind == "local"
    for wrong in (int, 3, object()):
        with pytest.raises(FallbackConfigError, match=r"rules: rule 1.*error.*pass classes"):
            FallbackConfig(rules=rule(error=wrong))


def test_what_the_package_settles_early_is_a_rules_all_the_same() -> None:
    """A web framework's exception is local, unless a rule says that a gateway raises it."""
    http = type("HTTPException", (Exception,), {"__module__": "starlette.exceptions"})
    assert judged(http("team budget"), rule(text="other")).kind == "local"
    assert judged(http("team budget"), rule(text="team budget")).kind == "quota"


def test_what_stands_inside_an_exception_fits() -> None:
    """A cause, where the outer class decides nothing; of a group the gravest kind, as ever."""
    nearer = type("TeamBudgetError", (BudgetError,), {})
    for outer in (RuntimeError, ConnectionError, Exception):
        error = raised_from(outer("it failed"), nearer("x"))
        assert judged(error, rule(error="BudgetError")).kind == "quota"
    group = ExceptionGroup("x", [StatusError(503), BUDGET])
    grave = rule(kind="invalid_request", code="TEAM_BUDGET")
    assert judged(group, grave).kind == "invalid_request"


ERROR_BODY = {"error": {"code": "TEAM_BUDGET", "message": "no", "status": 403}}
FILTERED = {"choices": [{"message": {"content": None}, "finish_reason": "content_filter"}]}


def judged_answer(answer: Any, *rules: Any) -> Failure:
    failure = check_response(answer)
    assert failure is not None
    return judged(AnswerRejected(failure), *rules)


def test_an_error_in_an_answer_fits() -> None:
    """Error objects under HTTP 200, alone or at a stream's end; a reason to finish is a code."""
    for answer in (ERROR_BODY, [ERROR_BODY]):
        failure = judged_answer(answer, rule(code="TEAM_BUDGET", text="no"))
        assert (failure.kind, failure.by_rule, failure.status) == ("quota", True, 403)
        assert judged_answer(answer, rule(code="other")).kind == "permission"
    failure = judged_answer(FILTERED, rule(kind="server_error", code="content_filter"))
    assert (failure.kind, failure.provider_message) == ("server_error", "")
    assert judged_answer(FILTERED, rule(code="stop")).kind == "refusal"


@pytest.mark.parametrize("driver", DRIVERS)
def test_rules_count_with_every_verb(driver: str, file: Path) -> None:
    """An exception that would end the call switches; the record says whose rule that was."""
    busy = StatusError(400)
    busy.body = {"error": {"message": "The model is busy", "type": "invalid_request_error"}}
    policy, script = pair(rules=file), repeating(primary=[busy], fallback=["yes"])
    run = policy.start()
    assert DRIVERS[driver](policy, script, run) == "yes"
    first = run.record.attempts[0]
    assert (first.kind, first.note) == ("overloaded", "rule 2 of rules.toml")
    assert "primary (rule 2 of rules.toml): overloaded (400, StatusError)" in run.record.explain()
    # What check_response finds is a rule's, too: here one that ends the call.
    policy = pair(rules=rule(kind="invalid_request", code="TEAM_BUDGET"))
    script = repeating(primary=[ERROR_BODY], fallback=["yes"])
    run = policy.start()
    with pytest.raises(AnswerRejected):
        DRIVERS[driver](policy, script, run)
    assert [attempt.kind for attempt in run.record.attempts] == ["invalid_request"]


def test_rules_count_for_what_a_validator_raises() -> None:
    """And not for another answer that it refuses."""

    def check(answer: str) -> None:
        raise BudgetError(answer)

    policy = pair(validate=check, rules=rule(error="BudgetError", text="team"))
    assert kinds(policy, primary=["team"], fallback=["team"]) == ["quota", "quota"]
    assert kinds(policy, primary=["x"], fallback=["x"])[0] == "malformed_response"


@pytest.mark.parametrize("preset", ["honcho", "hermes", "resilient"])
def test_a_preset_leaves_alone_what_a_rule_said(preset: str) -> None:
    """Honcho's table goes by status and hermes' takes the unknown for the provider's; a rule,
    which the user wrote for this very error, is asked before.
    """
    make = getattr(FallbackConfig, preset)
    stop, go = rule(kind="local", status=500), rule(kind="overloaded", status=400)
    options: Any = {"wait": 0, "switch_after": 1, "cooldown": None}
    config = make(rules=[stop, go], reset="iteration", **options)
    policy = FallbackPolicy([Target("primary"), Target("fallback")], config)
    assert kinds(policy, primary=[StatusError(400)], fallback=["yes"]) == ["overloaded", None]
    assert kinds(policy, primary=[StatusError(500)], fallback=["yes"]) == ["local"]


def test_refine_comes_after_the_rules() -> None:
    """It corrects whoever decided, and is told where a rule has."""
    seen: list[bool] = []

    def refine(failure: Failure, _: BaseException) -> Failure:
        seen.append(failure.by_rule)
        return failure._replace(kind=FailureKind.RATE_LIMIT)

    options: Any = {"rules": rule(status=403), "refine": refine}
    assert kinds(pair(**options), primary=[BUDGET], fallback=["x"])[0] == "rate_limit"
    assert kinds(pair(**options), primary=[StatusError(500)], fallback=["x"])[0] == "rate_limit"
    assert seen == [True, False]


def test_rules_are_read_once(file: Path) -> None:
    """They are values: the file may go, and copies of every kind keep them."""
    config = FallbackConfig(rules=file)
    file.unlink()
    copies = (
        copy.copy(config),
        copy.deepcopy(config),
        pickle.loads(pickle.dumps(config)),  # noqa: S301 # our own bytes
        config.model_copy(),
        config.replace(timeout=3),
        FallbackConfig(**config.model_dump(by_alias=True)),
        FallbackConfig(rules=config.model_dump(mode="json", include={"rules"})["rules"]),
        FallbackPolicy([Target("x")], config, timeout=3).config,
    )
    assert [one.rules for one in copies] == [config.rules] * len(copies)
    assert hash(config.rules) == hash(copies[2].rules)
    with pytest.raises(ValidationError, match="frozen"):
        config.rules[0].kind = FailureKind.LOCAL  # type: ignore[misc] # the point


def test_a_call_has_rules_of_its_own(file: Path) -> None:
    """An override stands in their place; None takes them out."""
    policy = pair(rules=file)
    for rules, kind in ((None, "permission"), (rule(kind="timeout", status=403), "timeout")):
        run = policy.start(rules=rules)
        assert run.attempt.position == 0
        run.fail(BUDGET)
        assert run.record.attempts[0].kind == kind


def test_a_simulated_policys_file_names_a_rules_file(file: Path, tmp_path: Path) -> None:
    """A policy file for `simulate` is a loader of configs, too."""
    policy = tmp_path / "policy.toml"
    policy.write_text(f"rules = '{file}'", "utf-8")
    _, config = load_policy(policy)
    assert isinstance(config, FallbackConfig)
    assert len(config.rules) == 2


def test_paths_are_for_configs() -> None:
    """The classifier takes rules that were read: it would read a file at each failure."""
    wrong: Any
    for wrong in ("rules.toml", [{"kind": "quota"}], ("rules.toml",)):
        with pytest.raises(FallbackConfigError, match=r"rules: got a .*FallbackConfig\(rules="):
            classify(BUDGET, rules=wrong)


@pytest.mark.parametrize("row", OWN["refused"], ids=lambda row: row["words"])
def test_a_wrong_rule_is_refused_with_the_place_and_the_fix(row: dict[str, Any]) -> None:
    """Which rule, which key, what was found, what to write; and no secret."""
    with pytest.raises(FallbackConfigError) as refused:
        FallbackConfig(rules=row["rules"] if "rules" in row else rule(**row["rule"]))
    assert row["words"] in str(refused.value)
    assert str(refused.value).startswith("rules: ")


@pytest.mark.parametrize("row", OWN["refused_files"], ids=lambda row: row["words"])
def test_a_wrong_file_is_named(row: dict[str, str], tmp_path: Path) -> None:
    """The file, and where a rule is wrong, the rule; a file of another encoding is no TOML."""
    path = tmp_path / "rules.toml"
    path.write_text(row["content"], row.get("encoding", "utf-8"))
    with pytest.raises(FallbackConfigError) as refused:
        FallbackConfig(rules=path)
    assert f"{path}: " in str(refused.value)
    assert row["words"] in str(refused.value)


def test_every_mistake_is_named_at_once(tmp_path: Path, file: Path) -> None:
    """Of all files, a line for each."""
    file.write_text("[[rule]]\nkind = 'x'\nstatus = 1\n[[rule]]\nkind = 'quota'\n", "utf-8")
    with pytest.raises(FallbackConfigError) as refused:
        FallbackConfig(rules=[file, tmp_path / "nowhere.toml", tmp_path])
    kind, status, empty, missing, folder = str(refused.value).splitlines()
    assert kind.startswith(f"{file}: rule 1: kind: ")
    assert status.startswith(f"{file}: rule 1: status: ")
    assert empty.startswith(f"{file}: rule 2: conditions: ")
    assert "nowhere.toml: No such file" in missing
    assert "Is a directory" in folder
