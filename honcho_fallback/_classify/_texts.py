"""What a message means: its sentences as sets of word groups, and rules over those sets.

A provider words the same failure in a hundred ways, with the same few words: something of money
and something of lack is a quota, whoever wrote it and in whatever order. So a text is cut into
sentences, each becomes the set of the groups that its words belong to, and a rule asks for groups
that stand in one sentence (both in ``tables/texts.toml``). The codes of an error document and the
names of classes are read in the same way: ``insufficientUserQuota`` is a sentence of three words.

One pass over a text, one look-up for each word: nothing backtracks.
"""

from __future__ import annotations

import re
from asyncio import get_running_loop
from functools import lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar
from unicodedata import normalize

from honcho_fallback._classify._tables import Row, read, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Meaning = TypeVar("Meaning")

# What rules may name in place of a status: no status at all; the same where a built-in class such
# as ValueError carries the text, which is more likely to be the program's own; and the class of a
# library that wraps whatever happened, in this process too.
NO_STATUS, PROGRAM, LIBRARY = 0, 1, 2

# An address; a word, or a name of several; a number; a stop, as is a page's closing tag; what
# parts the words of a phrase; a run of what is no ASCII; the name of a field, which is no part of
# the sentence that is its value.
_TOKEN = re.compile(
    r"https?://[^\s\"'<>]++|[A-Za-z]\w*+(?:[-/:.]\w++)*+(?:'[A-Za-z]+)?|(?<=\s)-?\d+|\d+"
    r"|[.;!?](?![^\s\"'])|[\n{}:,()]|</|[^\x00-\x7f]+|[\"']\w{1,40}[\"']\s?:",
    re.ASCII,
)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of a name in capitals, camels or joined
_JOINED, _DIGIT = re.compile(r"[-/:]"), re.compile(r"\d")
_STOP = re.compile(r"[.;!?\n{}]|</")
# What does not part the two words of a phrase: "cannot be found" is "not found".
_BETWEEN = frozenset({"is", "are", "be", "been", "was", "were", "currently", "yet"})
_NUMBER = "#"  # how a phrase names any number; one below zero with a minus
# Scripts from here on have no spaces, or write a word and its ending as one: their words are
# looked for anywhere in a run. What is before is read word for word, marks of letters left out.
_RUNS = "\u0590"
_PLAIN: dict[int, str] = {
    **{code: normalize("NFD", chr(code))[0] for code in (*range(0xC0, 0x180), 0x401, 0x451)},
    ord("\xdf"): "ss",
    ord("\u2019"): "'",
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\xab\xbb"), '"'),
}


class _Word(NamedTuple):
    """Say what one word adds to its sentence: groups, phrases that it may begin or end."""

    groups: int = 0
    begins: frozenset[int] = frozenset()
    ends: frozenset[int] = frozenset()
    stops: bool = False
    is_between: bool = False  # may it stand between the two words of a phrase?


_NOTHING = _Word()


class Rule(NamedTuple, Generic[Meaning]):
    """Hold one alternative of a row as sets of groups."""

    needed: int  # all of these stand in one sentence
    excluded: int  # none of these stands in the same sentence
    absent: int  # none of these stands anywhere in the text
    row: Meaning  # what that means
    words: str  # the alternative as the table has it


class Vocabulary:
    """Read texts by groups of words: a table's ``[words]``.

    Args:
        groups: The entries of each: a word, a stem that ends in ``*``, or two of these side by
            side; in a script without spaces, what is looked for anywhere.
    """

    def __init__(self, groups: Mapping[str, Iterable[str]]) -> None:
        self._bits = {name: 1 << place for place, name in enumerate(groups)}
        # By their first two letters, as most words are none of these.
        self._entries: dict[str, dict[str, _Word]] = {}
        self._phrases: list[int] = []  # the groups of each, by its place
        for group, entries in groups.items():
            for entry in entries:
                first, _, second = entry.translate(_PLAIN).partition(" ")
                if second:
                    place = frozenset({len(self._phrases)})
                    self._phrases.append(self._bits[group])
                    self._add(first, _Word(begins=place))
                    self._add(second, _Word(ends=place))
                else:
                    self._add(first, _Word(self._bits[group]))
        self.word = lru_cache(maxsize=4096)(self._word)

    def _add(self, entry: str, word: _Word) -> None:
        entries = self._entries.setdefault("" if entry >= _RUNS else entry[:2], {})
        entries[entry] = _both(entries[entry], word) if entry in entries else word

    def _find(self, word: str) -> _Word:
        known, is_run = _Word(is_between=True) if word in _BETWEEN else _NOTHING, word >= _RUNS
        for entry, meaning in self._entries.get("" if is_run else word[:2], {}).items():
            stem = entry.removesuffix("*")
            is_begun = stem is not entry and word.startswith(stem)
            if word == entry or is_begun or (is_run and entry in word):
                known = _both(known, meaning)
        return known

    def _word(self, token: str) -> _Word:
        if not token.isascii():
            return self._find(token.lower())
        if _STOP.fullmatch(token) or token[0] in "\"'":
            return _Word(stops=True)
        if token[-1].isdigit() and not token[0].isalpha():
            return self._find("-#" if token[0] == "-" else _NUMBER)
        # The words of an address, a path, and a name with a number in it say nothing.
        if _JOINED.search(token) and (token.count("/") > 1 or _DIGIT.search(token)):
            return _NOTHING
        parts = [token] if "'" in token else _PART.findall(token)
        words = [self._find(part.lower()) for part in parts]
        if token.lower() == "cannot" or token[-3:].lower() == "n't":
            words = [_both(words[0], self._find("not"))]
        if len(words) < 2:
            return words[0] if words else _NOTHING
        return _Word(self._sets(words)[0], words[-1].begins, words[0].ends)

    def _sets(self, words: Iterable[_Word]) -> list[int]:
        sets: list[int] = []
        groups, begun = 0, _NOTHING.begins
        for word in words:
            if word is _NOTHING:  # as most are
                begun = _NOTHING.begins
                continue
            own, begins, ends, stops, is_between = word
            if stops:
                sets.append(groups)
                groups, begun = 0, begins
                continue
            groups |= own
            if begun and ends:
                for place in begun & ends:
                    groups |= self._phrases[place]
            begun = begun | begins if is_between else begins
        return [*sets, groups]

    def sentences(self, text: str) -> list[int]:
        """Cut a text into sentences, each the set of the groups that its words belong to."""
        if not text.isascii():
            text = text.translate(_PLAIN)
        return self._sets(map(self.word, _TOKEN.findall(text)))

    def rule(self, alternative: str, row: Meaning) -> Rule[Meaning]:
        """Read one alternative: names of groups, each excluded by a - and absent by a ~."""
        sets = {"": 0, "-": 0, "~": 0}
        for group in alternative.split():
            mark = group[0] if group[0] in sets else ""
            sets[mark] |= self._bits[group.removeprefix(mark)]
        return Rule(sets[""], sets["-"], sets["~"], row, alternative)


class TextRules(Generic[Meaning]):
    """Say what a text means by the rules of a table.

    Args:
        vocabulary: The groups that the rules name.
        rules: Each meaning with its alternatives, in order: the first that fits decides.
    """

    def __init__(
        self, vocabulary: Vocabulary, rules: Iterable[tuple[Meaning, Iterable[str]]]
    ) -> None:
        self._vocabulary = vocabulary
        self.rules = [vocabulary.rule(words, row) for row, any_of in rules for words in any_of]
        self._candidates = lru_cache(maxsize=256)(self._open)

    def _open(self, groups: int) -> list[Rule[Meaning]]:
        needing = (rule for rule in self.rules if rule.needed & groups == rule.needed)
        return [rule for rule in needing if not rule.absent & groups]

    def first(self, text: str) -> Rule[Meaning] | None:
        """Find the first rule that one sentence of a text fits, or None."""
        sets = self._vocabulary.sentences(text)
        for rule in self._candidates(reduce(or_, sets)):
            for groups in sets:
                if groups & rule.needed == rule.needed and not groups & rule.excluded:
                    return rule
        return None

    def meaning(self, text: str) -> Meaning | None:
        rule = self.first(text)
        return rule and rule.row


def _both(one: _Word, other: _Word) -> _Word:
    begins, ends = one.begins | other.begins, one.ends | other.ends
    return _Word(one.groups | other.groups, begins, ends, is_between=one.is_between)


# What providers write, in English and in other tongues.
_TABLE = read("texts")
GROUPS: dict[str, list[str]] = _TABLE["words"]
for tongue in read("tongues").values():
    for group, entries in (item for words in tongue for item in words.items()):
        GROUPS.setdefault(group, []).extend(entries)
VOCABULARY = Vocabulary(GROUPS)
TEXTS = rows(_TABLE["text"], statuses=_TABLE["statuses"])

# Of each status, or of what rules name in its place.
RULES = {
    status: TextRules(VOCABULARY, ((row, row.any) for row in TEXTS if status in row.statuses))
    for status in {status for row in TEXTS for status in row.statuses}
}


def meaning(text: str, status: int) -> Row | None:
    """Return what a text means under a status, or None where it says nothing.

    A client of this process is only stale where an event loop runs: elsewhere the program has
    closed it.
    """
    rules = RULES.get(status) or RULES.get(status // 100 * 100)
    row = rules.meaning(text) if rules else None
    if row is not None and row.scope == "client":
        try:
            get_running_loop()
        except RuntimeError:
            return None
    return row
