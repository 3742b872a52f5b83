"""What the words of a message mean, in any tongue, and what is no such text."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from honcho_fallback._classify import classify
from honcho_fallback._classify._tables import read
from honcho_fallback._classify._texts import (
    GROUPS,
    LIBRARY,
    NO_STATUS,
    PROGRAM,
    RULES,
    VOCABULARY,
    Vocabulary,
    meaning,
)
from tests.helpers.errors import EXAMPLES, ProviderError, stand_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from honcho_fallback._values.failure import Failure


def error_of(status: int, message: str) -> Exception:
    """Build the exception whose text counts under a status, or under none."""
    if status == PROGRAM:
        return ValueError(message)
    if status == LIBRARY:
        cls: type[Exception] = stand_in("APIConnectionError", "litellm", Exception)
        return cls(message)
    return ProviderError(message, status_code=None if status == NO_STATUS else status)


def first_rule(text: str, status: int) -> Any:
    """Find the first rule that one sentence of a text fits, or None."""
    rules = RULES.get(status) or RULES.get(status // 100 * 100)
    return rules and rules.first(text)


def under_a_loop(read: Callable[..., Any], *text: Any) -> Any:
    """Read a text where a client of this process may be stale."""

    async def in_task() -> Any:
        return read(*text)

    return asyncio.run(in_task())


# The status, the sentence and the alternative that it fits.
STANDS_FOR = {"program": PROGRAM, "library": LIBRARY, "none": NO_STATUS}
FIT = [
    (STANDS_FOR.get(row["under"], row["under"]), row["sentence"], row["kind"], row["alternative"])
    for row in EXAMPLES["sentences"]["fit"]
]
SENTENCES = [
    (tongue, row["kind"], row["sentence"])
    for tongue, rows in EXAMPLES["tongues"].items()
    for row in rows
]


@pytest.mark.parametrize(("status", "sentence", "kind", "alternative"), FIT)
def test_a_sentence_fits_its_alternative(
    status: int, sentence: str, kind: str, alternative: str
) -> None:
    """A sentence with the words of an alternative is read by it, alone and inside an exception."""
    rule = first_rule(sentence, status)
    assert rule is not None
    assert (rule.words, rule.row.kind) == (alternative, kind)
    failure: Failure = under_a_loop(classify, error_of(status, sentence))
    assert (failure.kind, failure.reason) == (kind, rule.row.reason)


def test_every_alternative_has_an_example() -> None:
    """A rule that is added without an example fails here."""
    alternatives = {
        (rule.row.kind, rule.words) for rules in RULES.values() for rule in rules.rules
    }
    assert alternatives == {(kind, alternative) for _, _, kind, alternative in FIT}


def marked(mark: str) -> list[tuple[int, str, str, str]]:
    """List the examples with each group that their alternatives exclude."""
    return [
        (status, sentence, alternative, group[1:])
        for status, sentence, _, alternative in FIT
        for group in alternative.split()
        if group[0] == mark
    ]


def entries(group: str) -> list[str]:
    """List what a group's entries match: a stem itself, any number as one."""
    return [entry.replace("*", "").replace("#", "7") for entry in GROUPS[group]]


def fits(sentence: str, status: int, alternative: str) -> bool:
    rule = first_rule(sentence, status)
    return rule is not None and rule.words == alternative


@pytest.mark.parametrize(("status", "sentence", "alternative", "group"), marked("-"))
def test_an_excluded_word_in_the_sentence_prevents_it(
    status: int, sentence: str, alternative: str, group: str
) -> None:
    """Each word of a group that stands with a minus parts the sentence from its alternative."""
    for entry in entries(group):
        assert not fits(f"{sentence}, {entry}", status, alternative), entry
        assert not fits(f"{entry}, {sentence}", status, alternative), entry


@pytest.mark.parametrize(("status", "sentence", "alternative", "group"), marked("~"))
def test_an_absent_word_anywhere_prevents_it(
    status: int, sentence: str, alternative: str, group: str
) -> None:
    """Each word of a group with a tilde does so from another sentence, too."""
    for entry in entries(group):
        assert not fits(f"{sentence}. {entry}", status, alternative), entry
        assert not fits(f"{entry}\n{sentence}", status, alternative), entry


def test_every_word_is_read_as_its_group() -> None:
    """No entry is out of the reader's reach, whatever case a text has it in."""
    for number, group in enumerate(GROUPS):
        bit = 1 << number
        for entry, pattern in zip(entries(group), GROUPS[group], strict=True):
            texts = [entry, entry.capitalize(), *([] if "'" in entry else [entry.upper()])]
            texts += [entry + "ing"] if pattern[-1] == "*" else []
            for text in texts:
                assert VOCABULARY.sentences(text)[0] & bit, (group, text)
                assert VOCABULARY.sentences(f"so, {text}, it says")[0] & bit, (group, text)


def test_a_word_that_is_no_stem_needs_its_whole_length() -> None:
    """Only an entry with a star is the beginning of longer words."""
    assert fits("the panicking part", 500, "panic")
    assert fits("use chat models here", 404, "chat_api") is False
    assert fits("use a chat model here", 404, "chat_api")


# --- sentences


@given(words=st.permutations(["deployment", "was", "removed", "on", "tuesday"]))
def test_words_count_in_any_order(words: list[str]) -> None:
    """A sentence is the set of its words."""
    assert fits(" ".join(words), 404, "model gone -feature -modal")


STOPS = [". ", "! ", "? ", "; ", "\n", " { ", " } ", '."', ".'", ".\t"]


@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_separates(stop: str) -> None:
    """Words of two sentences fit nothing together."""
    assert fits("deployment removed", 404, "model gone -feature -modal")
    assert meaning(f"deployment{stop}removed", 404) is None
    assert fits(f"hello{stop}deployment removed", 404, "model gone -feature -modal")
    assert fits(f"deployment removed{stop}hello", 404, "model gone -feature -modal")


@pytest.mark.parametrize("part", [", ", ": ", " (", ") ", " - ", " / ", " = ", " v1.2 ", " a.b "])
def test_what_is_no_stop_keeps_the_sentence(part: str) -> None:
    """A comma, brackets, a dash and a dot inside a token leave the words together."""
    assert fits(f"deployment{part}removed", 404, "model gone -feature -modal")


def test_the_name_of_a_field_is_no_part_of_its_value() -> None:
    """A document that stands in a text is read by its values, each for itself."""
    assert fits("unknown parameter", 400, "parameter wrong -python_error -null_type")
    assert meaning("{'parameter': 'unknown'}", 400) is None
    text = """hello: {"type": "unknown", 'detail': 'the deployment was removed'}"""
    assert fits(text, 400, "model gone -feature -modal")


@pytest.mark.parametrize(
    "name",
    [
        "deploymentRemoved",
        "DeploymentRemoved",
        "HTTPDeploymentRemoved",
        "DeploymentRemovedHTTP",
        "deployment_removed",
        "DEPLOYMENT_REMOVED",
        "Deployment_Removed",
        "deployment-removed",
        "Deployment-Removed",
        "DEPLOYMENT-REMOVED",
        "deployment/removed",
        "deployment:removed",
        "deployment.removed",
        "the-deployment-was-removed",
        "deployment-removed_now",
    ],
)
def test_a_name_is_read_as_its_words(name: str) -> None:
    """Camels, snakes, kebabs and paths are sentences, alone and within one."""
    assert fits(name, 404, "model gone -feature -modal")
    assert fits(f"it says {name}, sorry", 404, "model gone -feature -modal")


@pytest.mark.parametrize(
    "name", ["RateLimit", "rateLimit", "rate_limit", "rate-limit", "RATE_LIMIT"]
)
def test_a_name_holds_phrases(name: str) -> None:
    """Words that a name joins stand side by side; so do its ends and the words beside it."""
    assert fits(name, 500, "rate -option")
    assert fits("the x-rate limit", 500, "rate -option")
    assert fits("a rate limit-x", 500, "rate -option")


@pytest.mark.parametrize(
    "name",
    [
        "deployment-3-removed",
        "removed-deployment-3b",
        "deployment/removed:2",
        "https://deployment.test/removed",
        "http://x.test/deployment-removed?removed=deployment",
    ],
)
def test_a_models_name_and_an_address_say_nothing(name: str) -> None:
    """Words of a name with a number, and of an address, are no words of the sentence."""
    assert VOCABULARY.sentences(name) == [0]
    assert meaning(f"we saw {name}, hello", 404) is None
    assert fits(f"deployment {name} removed", 404, "model gone -feature -modal")
    assert fits("rate limit", 500, "rate -option")
    assert not fits(f"rate {name} limit", 500, "rate -option")


@pytest.mark.parametrize(
    "text",
    [
        "rate of limit",
        "limit rate",
        "rate, limit",
        "rate: limit",
        "rate (limit)",
        "rate 3 limit",
        "rate. limit",
        "rate\nlimit",
    ],
)
def test_a_phrase_stands_side_by_side(text: str) -> None:
    """Words apart, in another order or in two sentences are no phrase."""
    assert not fits(text, 500, "rate -option")


@pytest.mark.parametrize(
    "text",
    [
        "The requested deployment could not be found.",
        "This deployment has not been deployed.",
        "The deployment is not yet available.",
        "The deployment is not currently available",
        "The deployment isn't available.",
        "The deployment cannot be found",
        "The deployment hasn't been deployed",
    ],
)
def test_a_verb_of_being_does_not_part_the_words_of_a_phrase(text: str) -> None:
    """A phrase is read in whatever voice and tense it is written, and "n't" is "not"."""
    assert fits(text, 404, "model gone -feature -modal")
    apart = text.replace("not ", "not so ").replace("n't", "n't so")
    assert not fits(apart, 404, "model gone -feature -modal")


def test_a_phrase_begins_where_another_ends() -> None:
    """The middle one of three words may belong to both sides."""
    assert fits("no request rate limit", 500, "rate -option")
    assert fits("too rate limited", 500, "rate -option")


@pytest.mark.parametrize(
    "text", ["您的账户余额不足", "错误:余额已不足!", "sorry: 账户余额 is 不足", "余额、不足。"]
)
def test_words_of_other_scripts_are_found_inside_a_run(text: str) -> None:
    """A script without spaces has its words inside longer runs."""
    assert fits(text, 400, "money lacking -parameter ~short_window")
    assert fits(text, NO_STATUS, "money lacking -parameter ~short_window")


def test_a_typographic_apostrophe_is_one() -> None:
    """A word is the same with either apostrophe."""
    for apostrophe in ("'", "\N{RIGHT SINGLE QUOTATION MARK}"):
        assert fits(f"the host couldn{apostrophe}t resolve", 500, "dns failed -model")


# --- statuses


@given(status=st.integers(400, 599).filter(lambda status: status not in RULES))
def test_an_unknown_status_counts_as_its_class(status: int) -> None:
    """A status without rules of its own has those of 400 or of 500."""
    stands_for = 400 if status < 500 else 500
    for _, sentence, _, _ in FIT:
        assert first_rule(sentence, status) == first_rule(sentence, stands_for)


@pytest.mark.parametrize("status", [100, 200, 302, 399])
def test_a_success_has_no_rules(status: int) -> None:
    """What is no error status is nobody's class."""
    assert all(first_rule(sentence, status) is None for _, sentence, _, _ in FIT)


def test_the_first_rule_that_fits_decides() -> None:
    """The order of the table decides between two rules, not the order of their sentences."""
    rate, crash = "slow down", "goroutine panicked"
    for text in (f"{rate}. {crash}", f"{crash}. {rate}", f"{rate}, {crash}"):
        assert fits(text, 500, "panic")


# --- any text

_tokens = st.sampled_from(
    [
        *(entry.replace("*", "") for group in GROUPS.values() for entry in group),
        *".,;{}():-/'\n",
        "3",
        "429",
        "https://x.test/a",
        "a-b-3",
        "\N{RIGHT SINGLE QUOTATION MARK}",
    ]
)


@given(text=st.text() | st.lists(_tokens, max_size=30).map(" ".join))
def test_any_text_is_read(text: str) -> None:
    """Nothing raises, and the rule that comes out is one of the status's own."""
    for status, rules in RULES.items():
        rule = first_rule(text, status)
        assert rule is None or rule in rules.rules


@pytest.mark.parametrize(
    "part",
    [
        "a",
        "a-",
        "a.",
        "A",
        "aA",
        "'",
        "a'",
        "1",
        "-",
        ".",
        "{",
        "\N{RIGHT SINGLE QUOTATION MARK}",
        "余",
        "http://",
        "rate ",
        "a:/",
        "_",
    ],
)
def test_a_long_text_is_read_to_its_end(part: str) -> None:
    """A text that repeats itself is read in one pass, or the test's time would run out."""
    text = f"{part * 50_000} \n slow down"
    assert fits(text, 500, "rate -option")


# --- tongues

ENGLISH: dict[str, list[str]] = read("texts")["words"]


def kind_of(message: str) -> str:
    """Tell what a relay's error means that says it under 400."""
    body = {"error": {"message": message}}
    return classify(ProviderError(message, status_code=400, body=body)).kind


@pytest.mark.parametrize(("tongue", "kind", "sentence"), SENTENCES)
def test_a_sentence_is_read_in_its_tongue(tongue: str, kind: str, sentence: str) -> None:
    """A 400 means what its message says, also in capitals and in the middle of another text."""
    assert tongue in read("tongues")
    assert kind_of(sentence) == kind
    assert kind_of(sentence.upper()) == kind
    assert kind_of(f"upstream says: {sentence} (request id: ab12)") == kind


@pytest.mark.parametrize(("tongue", "kind", "sentence"), SENTENCES)
def test_a_tongue_is_read_by_its_words(tongue: str, kind: str, sentence: str) -> None:
    """Without the words of the tongues a sentence says something else, or nothing."""
    english = Vocabulary({group: ENGLISH.get(group, ()) for group in GROUPS})
    assert english.sentences(sentence) != VOCABULARY.sentences(sentence), (tongue, kind)


# --- letters


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("crédito", "money"),
        ("CRÉDITO", "money"),
        ("credito", "money"),
        ("überlastet", "busy"),
        ("ueberlastet", None),
        ("счёт", "money"),
        ("СЧЕТА", "money"),
        ("расчёт", None),
        ("残高が", "money"),
        ("ご利用残高", "money"),
    ],
)
def test_letters_with_marks_are_read_as_those_without(text: str, group: str | None) -> None:
    """A word of an alphabet is read as a whole; one of a script without spaces, inside a run."""
    places = [1 << list(GROUPS).index(group)] if group else [0]
    assert VOCABULARY.sentences(text) == places


def test_a_phrase_may_stand_in_two_scripts() -> None:
    """A word in Latin letters and one inside the run after it are side by side."""
    key = 1 << list(GROUPS).index("key")
    assert VOCABULARY.sentences("このAPIキーは")[0] & key
    assert VOCABULARY.sentences("このAPI キーは")[0] & key
    assert not VOCABULARY.sentences("このキーは")[0] & key
