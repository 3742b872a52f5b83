"""What the words of a message mean, in any tongue, and what is no such text."""

from __future__ import annotations

from itertools import product
from typing import Any

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
from tests.helpers.errors import EXAMPLES, ProviderError, classified_in_a_task, stand_in


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
    failure = classified_in_a_task(error_of(status, sentence))
    assert (failure.kind, failure.reason) == (kind, rule.row.reason)


def test_every_alternative_has_an_example() -> None:
    """A rule that is added without an example fails here."""
    alternatives = {
        (rule.row.kind, rule.words) for rules in RULES.values() for rule in rules.rules
    }
    assert alternatives == {(kind, alternative) for _, _, kind, alternative in FIT}


def entries(group: str) -> list[str]:
    """List what a group's entries match: a stem itself, any number as one."""
    return [entry.replace("*", "").replace("#", "7") for entry in GROUPS[group]]


def fits(sentence: str, status: int, alternative: str) -> bool:
    rule = first_rule(sentence, status)
    return rule is not None and rule.words == alternative


# What a group of an alternative excludes by its mark, and what may stand before such a word.
EXCLUDES = {"-": [", "], "~": [". ", "\n"]}
EXCLUDING = [
    (status, sentence, alternative, group)
    for status, sentence, _, alternative in FIT
    for group in alternative.split()
    if group[0] in EXCLUDES
]


@pytest.mark.parametrize(("status", "sentence", "alternative", "group"), EXCLUDING)
def test_a_word_that_is_excluded_prevents_it(
    status: int, sentence: str, alternative: str, group: str
) -> None:
    """Each of a group with a minus does so in the sentence, of one with a tilde anywhere."""
    for entry, apart in product(entries(group[1:]), EXCLUDES[group[0]]):
        assert not fits(f"{sentence}{apart}{entry}", status, alternative), entry
        assert not fits(f"{entry}{apart}{sentence}", status, alternative), entry


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


# --- sentences


@pytest.mark.parametrize("row", EXAMPLES["reading"], ids=lambda row: row["says"])
def test_a_text_is_read_by_its_sentences(row: dict[str, Any]) -> None:
    """Each text of a rule fits its alternative, alone and within a sentence, or does not."""
    for text in row.get("fits", ()):
        for whole in (text, f"it says {text}, sorry") if row.get("within", True) else (text,):
            assert fits(whole, row["under"], row["alternative"]), whole
    for text in row.get("fits_not", ()):
        assert not fits(text, row["under"], row["alternative"]), text


@given(words=st.permutations(["deployment", "was", "removed", "on", "tuesday"]))
def test_words_count_in_any_order(words: list[str]) -> None:
    """A sentence is the set of its words."""
    assert fits(" ".join(words), 404, "model gone -feature -modal")


@pytest.mark.parametrize("stop", [". ", "! ", "? ", "; ", "\n", " { ", " } ", '."', ".'", ".\t"])
def test_a_stop_separates(stop: str) -> None:
    """Words of two sentences fit nothing together."""
    assert meaning(f"deployment{stop}removed", 404) is None
    assert fits(f"hello{stop}deployment removed", 404, "model gone -feature -modal")
    assert fits(f"deployment removed{stop}hello", 404, "model gone -feature -modal")


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
    assert not fits(f"rate {name} limit", 500, "rate -option")


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


def test_a_long_text_is_read_to_its_end() -> None:
    """A text that repeats itself is read in one pass, or the test's time would run out."""
    parts = [*"aA'1-.{_余", "a-", "a.", "aA", "a'", "\N{RIGHT SINGLE QUOTATION MARK}", "http://"]
    for part in (*parts, "a:/", "rate "):
        assert fits(f"{part * 50_000} \n slow down", 500, "rate -option"), part


# --- tongues

ENGLISH: dict[str, list[str]] = read("texts")["words"]


def kind_of(message: str) -> str:
    """Tell what a relay's error means that says it under 400."""
    body = {"error": {"message": message}}
    return classify(ProviderError(message, status_code=400, body=body)).kind


@pytest.mark.parametrize(("tongue", "kind", "sentence"), SENTENCES)
def test_a_sentence_is_read_in_its_tongue(tongue: str, kind: str, sentence: str) -> None:
    """A 400 means what its message says, also in capitals and in the middle of another text."""
    english = Vocabulary({group: ENGLISH.get(group, ()) for group in GROUPS})
    assert english.sentences(sentence) != VOCABULARY.sentences(sentence), (tongue, kind)
    assert kind_of(sentence) == kind
    assert kind_of(sentence.upper()) == kind
    assert kind_of(f"upstream says: {sentence} (request id: ab12)") == kind


# --- letters


@pytest.mark.parametrize("row", EXAMPLES["alphabets"]["words"], ids=lambda row: row["text"])
def test_letters_with_marks_are_read_as_those_without(row: dict[str, Any]) -> None:
    """A word of an alphabet is read as a whole; one of a script without spaces, inside a run."""
    bit = 1 << [*GROUPS].index(row["group"])
    assert bool(VOCABULARY.sentences(row["text"])[0] & bit) is row["has"]
