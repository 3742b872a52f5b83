"""Sixteen outages, and one judge of what became of a call in them.

The subjects are those of FailoverBench (github.com/failoverbench/failoverbench, methodology 0.1),
and so are the four verdicts; server and judge are our own. Every call asks for a stream of twelve
words, each of which stands for five of its sixty. Everybody has the same budget: 30 s for a
client, one fallback, the SDK's usual two retries where a framework leaves retries to the SDK.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarks.faults import WORDS, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.faults import Request

CLIENT_TIMEOUT = 30.0
HEALTHY = Fault()
PRIMARY_MODEL, FALLBACK_MODEL = "primary-model", "fallback-model"
# Of the scenario with an outage: how long it is, and who asks how often.
OUTAGE, CALLS, INTERVAL = 60.0, 20, 4.0


class Verdict(StrEnum):
    """Say how good an end of a call is, the best first."""

    PASS = "pass"  # the caller has what is wanted, and nobody was asked too often
    PARTIAL = "partial"  # the caller has it, in a way that could be better
    SAFE = "safe"  # the caller has a clean error
    FAIL = "fail"  # no end, a cut answer that looks whole, or a harm to somebody


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold what a caller sees of an answer."""

    text: str
    model: str | None = None
    has_usage: bool = False

    @property
    def is_whole(self) -> bool:
        """Tell whether all words came, once each, in their order."""
        return self.text.split() == [*WORDS]


@dataclass(frozen=True, slots=True)
class Call:
    """Hold one call: when it was made, how long it took, in seconds, and what came of it."""

    at: float
    seconds: float
    result: Answer | Exception


class Hang(Exception):  # noqa: N818 # it is an observation
    """Say that a call did not end by itself."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Hold what callers and providers saw of a scenario."""

    calls: Sequence[Call]
    primary: Sequence[Request]
    fallback: Sequence[Request]
    works_afterwards: bool = True  # a call that is made next, at healthy providers


@dataclass(frozen=True, slots=True)
class Check:
    """Say what must hold.

    Args:
        broken: What is so where it does not: a clause for a table.
        holds: Looks.
        is_advice: Whether it costs a pass and no more.
        of_fallbacks: Whether it is asked of those only who have a fallback.
    """

    broken: str
    holds: Callable[[Observation], bool]
    is_advice: bool = False
    of_fallbacks: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """Describe an outage.

    Args:
        name: S01 to S16.
        title: What happens, in a few words.
        primary: What the primary does.
        checks: What is judged beside the answer.
        fallback: What the fallback does.
        most: Seconds after which a call hangs.
        wants_error: Whether a clean error is the best end.
        is_outage: Whether calls are made through an outage and beyond it.
    """

    name: str
    title: str
    primary: Fault
    checks: tuple[Check, ...] = ()
    fallback: Fault = HEALTHY
    most: float = 45.0
    wants_error: bool = False
    is_outage: bool = False


def _asked_again_after(seconds: float) -> Callable[[Observation], bool]:
    return lambda seen: any(b.at - a.at >= seconds for a, b in [*pairwise(seen.primary)][:1])


def _at_most(number: int, within: float = float("inf")) -> Callable[[Observation], bool]:
    return lambda seen: sum(one.at - seen.primary[0].at < within for one in seen.primary) <= number


def _ends_within(seconds: float) -> Callable[[Observation], bool]:
    # A loop's clock adds up fractions.
    return lambda seen: seen.calls[0].seconds <= seconds + 0.001


def _reports_the_fallback(seen: Observation) -> bool:
    result = seen.calls[0].result
    if not isinstance(result, Answer) or not seen.fallback:
        return True
    return FALLBACK_MODEL in (result.model or "")


def _has_usage(seen: Observation) -> bool:
    result = seen.calls[0].result
    return not isinstance(result, Answer) or result.has_usage


def _comes_back(seen: Observation) -> bool:
    return any(one.answered and one.at <= OUTAGE + 30 for one in seen.primary)


FEW = Check("the primary was asked more than six times", _at_most(6))
ONCE = Check("the primary was asked again", _at_most(1))
USAGE = Check("no usage was reported", _has_usage, is_advice=True)
WORKS = Check(
    "the next call, at healthy providers, got no answer", lambda seen: seen.works_afterwards
)
AGAIN = "the fallback answered at once, where the primary was to be asked again"
_CUT = Fault(cut_after=8)
_DOWN = Fault(status=503, code="overloaded")

SCENARIOS = (
    Scenario(
        "S01",
        "429 once, with Retry-After: 2",
        Fault(times=1, status=429, code="rate_limit_exceeded", headers={"retry-after": "2"}),
        (
            Check(AGAIN, _asked_again_after(1.8), is_advice=True),
            Check("the primary was hammered", _at_most(2, within=1.5)),
        ),
        most=20,
    ),
    Scenario(
        "S02",
        "429, always",
        Fault(status=429, code="rate_limit_exceeded"),
        (FEW, Check("the primary was hammered", _at_most(4, within=3))),
        most=40,
    ),
    Scenario(
        "S03",
        "500 once",
        Fault(times=1, status=500),
        (Check(AGAIN, lambda seen: len(seen.primary) > 1, is_advice=True),),
        most=20,
    ),
    Scenario("S04", "503, always", _DOWN, (FEW,), most=40),
    Scenario("S05", "the connection is reset, once", Fault(times=1, resets=True), most=20),
    Scenario(
        "S06",
        "no answer for 120 s",
        Fault(silence=120),
        (
            Check("the call took more than 100 s", _ends_within(100)),
            Check("the silent primary was asked again", _at_most(1), is_advice=True),
        ),
        most=130,
    ),
    Scenario(
        "S07",
        "the first word after 20 s",
        Fault(first_word_after=20),
        (
            Check(
                "the first word was waited for",
                _ends_within(15),
                is_advice=True,
                of_fallbacks=True,
            ),
        ),
        most=60,
    ),
    Scenario("S08", "cut after two thirds of the answer", _CUT, most=40),
    Scenario(
        "S09",
        "30 s of silence after a third of the answer, then cut",
        Fault(stall_after=4, stall=30),
        (Check("the call took more than 45 s", _ends_within(45)), WORKS),
        most=70,
    ),
    Scenario(
        "S10",
        "junk between two words",
        Fault(junk_after=2),
        (WORKS,),
        most=30,
    ),
    Scenario(
        "S11",
        "whole, without [DONE]",
        Fault(done=False),
        (Check("an end was waited for", _ends_within(8)), USAGE),
        most=30,
    ),
    Scenario(
        "S12",
        "400: the context is too long",
        Fault(status=400, code="context_length_exceeded"),
        (ONCE,),
        most=20,
    ),
    Scenario(
        "S13",
        "400: refused by a content filter",
        Fault(status=400, code="content_policy_violation"),
        (ONCE,),
        most=20,
        wants_error=True,
    ),
    Scenario(
        "S14",
        "cut, and the fallback takes no beginning",
        _CUT,
        (
            Check(
                "the fallback's refusal hides the cut",
                lambda seen: "invalid_prefill" not in str(seen.calls[0].result),
            ),
        ),
        fallback=Fault(prefill=False),
        most=40,
    ),
    Scenario(
        "S15",
        "503 for 60 s, a call every 4 s",
        Fault(status=503, code="overloaded", lasts=OUTAGE),
        (
            Check(
                "the primary was not asked within 30 s of its return",
                _comes_back,
                of_fallbacks=True,
            ),
            Check(
                "not every call in the outage was answered",
                lambda seen: all(
                    isinstance(one.result, Answer) for one in seen.calls if one.at < OUTAGE
                ),
                of_fallbacks=True,
            ),
        ),
        most=30,
        is_outage=True,
    ),
    Scenario(
        "S16",
        "503: who is reported",
        _DOWN,
        (FEW, USAGE, Check("the fallback's answer has another name", _reports_the_fallback)),
        most=40,
    ),
)


def judge(
    scenario: Scenario, seen: Observation, *, has_fallback: bool = True
) -> tuple[Verdict, str]:
    """Return the verdict and, where it is no pass, the reason."""
    return next(_objections(scenario, seen, has_fallback=has_fallback), (Verdict.PASS, ""))


def _objections(
    scenario: Scenario, seen: Observation, *, has_fallback: bool
) -> Iterator[tuple[Verdict, str]]:
    """Yield what speaks against a pass, the worst first."""
    asked = [one for one in scenario.checks if has_fallback or not one.of_fallbacks]
    broken = [one for one in asked if not one.holds(seen)]
    answers = [one.result for one in seen.calls if isinstance(one.result, Answer)]
    errors = [one.result for one in seen.calls if isinstance(one.result, Exception)]
    if any(isinstance(one, Hang) for one in errors):
        yield Verdict.FAIL, f"no end within {scenario.most:g} s"
    for answer in answers:
        if not answer.is_whole:
            words = len(answer.text.split())
            yield Verdict.FAIL, f"{words} words came as the whole answer of {len(WORDS)}"
    harms = [one.broken for one in broken if not one.is_advice]
    if harms:
        yield Verdict.FAIL, "; ".join(harms)
    if scenario.wants_error and answers:
        yield Verdict.PARTIAL, "the fallback answered what the primary's filter refused"
    if not scenario.wants_error and errors:
        yield Verdict.SAFE, f"the call ended with {type(errors[0]).__name__}"
    if broken:
        yield Verdict.PARTIAL, "; ".join(one.broken for one in broken)
