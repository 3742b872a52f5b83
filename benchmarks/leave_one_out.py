"""How well classify does at a provider whose errors nobody has seen.

    python leave_one_out.py ../shared/corpus --json figures.json

A table learns from the errors that its writers saw. How much of it holds elsewhere shows where the
errors of one provider are classified by what the others taught: for each provider, every unit of
the tables (a code, a class name, a rule, a word of a group) that only this provider's records need
is left out, and its records are asked again. Units that no record needs stay: nobody took them
from the collection.

It forks, because the tables are read at import; where there is no fork (Windows) it only says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import tomllib
import traceback
from collections import Counter, defaultdict
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from itertools import takewhile
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PACKAGE = "honcho_fallback"
SORTS = ("code", "generic code", "class name", "rule", "word")
OWN_ROW = 10  # providers with fewer records share one line
MOST = 30

Table = dict[str, Any]


class Case(NamedTuple):
    """Hold a record and the exception that its SDK raises for it."""

    record: dict[str, Any]
    error: BaseException


class Unit(NamedTuple):
    """Name one thing of the tables that decides.

    Args:
        sort: One of SORTS.
        name: The code, the class name, the alternative or the entry.
        home: The place of the alternative's row in texts.toml, or the entry's group.
    """

    sort: str
    name: str
    home: str = ""


class Answer(NamedTuple):
    """Say what classify answered: the failure kind, whether to switch, whether to retry."""

    kind: str
    switch: bool
    retry: bool


class Evidence(NamedTuple):
    """Hold what classify answered about each record, by its id, and what that needed."""

    answers: dict[str, Answer]
    units: dict[str, list[Unit]]

    def witnesses(self, cases: list[Case]) -> dict[Unit, list[str]]:
        """Give each unit the providers of the records that need it."""
        providers: dict[Unit, set[str]] = defaultdict(set)
        for record, _ in cases:
            for unit in self.units[record["id"]]:
                providers[unit].add(record["provider"])
        return {unit: sorted(names) for unit, names in providers.items()}


# --- what decided


class _Lookups(dict[Any, Any]):
    """A table that notes which of its keys were found."""

    def __init__(self, table: dict[Any, Any], notes: list[tuple[Any, Any]]) -> None:
        super().__init__(table)
        self._notes = notes

    def get(self, key: Any, default: Any = None) -> Any:
        value = super().get(key, default)
        if value is not None:
            self._notes.append((key, value))
        return value


class _Step(NamedTuple):
    """Hold one call of decide: the facts, the row, and what was looked up on the way."""

    facts: Any
    row: Any
    codes: list[tuple[str, Any]]
    generics: list[tuple[str, int]]
    texts: list[tuple[tuple[str, int], Any]]


class _Tracer:
    """Ask this process's classify, and note what its decision came from."""

    def __init__(self) -> None:
        self._package: Any = import_module(f"{PACKAGE}._classify")
        self._decision: Any = import_module(f"{PACKAGE}._classify._decide")
        self._texts: Any = import_module(f"{PACKAGE}._classify._texts")
        self._raw: list[Table] = import_module(f"{PACKAGE}._classify._tables").read("texts")[
            "text"
        ]
        self._steps: list[_Step] = []
        codes: list[tuple[str, Any]] = []
        generics: list[tuple[str, int]] = []
        texts: list[tuple[tuple[str, int], Any]] = []
        decide, meaning = self._decision.decide, self._texts.meaning

        def noting_meaning(text: str, status: int) -> Any:
            row = meaning(text, status)
            texts.append(((text, status), row))
            return row

        def noting_decide(exc: BaseException, facts: Any, **how: bool) -> Any:
            for notes in (codes, generics, texts):
                notes.clear()
            row, status = decide(exc, facts, **how)
            self._steps.append(_Step(facts, row, [*codes], [*generics], [*texts]))
            return row, status

        vars(self._decision).update(
            CODES=_Lookups(self._decision.CODES, codes),
            GENERIC=_Lookups(self._decision.GENERIC, generics),
            meaning=noting_meaning,
        )
        vars(self._package).update(decide=noting_decide)

    def ask(self, error: BaseException) -> tuple[Answer, list[Unit]]:
        self._steps.clear()
        failure = self._package.classify(error)
        answer = Answer(failure.kind.value, failure.switchable, failure.transient)
        steps = [step for step in reversed(self._steps) if step.row is not None]
        for step in steps:
            if step.row.reason == failure.reason:
                return answer, self._units(step)
        for step in steps:  # a rate limit that lasts for hours has a reason of its own
            if failure.kind.value == "quota" and step.row.kind.value == "rate_limit":
                return answer, self._units(step)
        return answer, []

    def _units(self, step: _Step) -> list[Unit]:
        row, stated = step.row, step.facts.error
        if row.name:
            return [Unit("class name", row.name)]
        for code, of_code in reversed(step.codes):
            if of_code is row:
                counts = not row.statuses or 200 in row.statuses
                return [Unit("code", code), *([] if stated or counts else _number(step))]
        for (text, status), of_text in reversed(step.texts):
            if of_text is row:
                counts = self._texts.meaning(text, self._texts.NO_STATUS) is row
                number = [] if stated or counts else _number(step)
                return [*self._text_units(text, status, row), *number]
        if row not in self._decision.STATUSES.values() or self._status_row(stated) is row:
            return []
        if not stated:
            return _number(step)
        inner = [code for code, status in step.generics if self._status_row(status) is row]
        return [Unit("generic code", code) for code in inner[-1:]]

    def _status_row(self, status: int | None) -> Any:
        statuses = self._decision.STATUSES
        return statuses.get(status) or statuses[status // 100 * 100] if status else None

    def _text_units(self, text: str, status: int, row: Any) -> list[Unit]:
        """Name the rule that a text fits, and the entries without which it would not."""
        of_status = self._texts.RULES.get(status) or self._texts.RULES[status // 100 * 100]
        rules = [rule for rule in of_status.rules if rule.row is row]
        parts = self._sentences(text)
        sets = [reduce(or_, self._texts.VOCABULARY.sentences(" ".join(part)), 0) for part in parts]
        union = reduce(or_, sets, 0)
        for place, rule in enumerate(rules):
            if rule.needed & union != rule.needed or rule.absent & union:
                continue
            fitting = [
                part
                for part, groups in zip(parts, sets, strict=True)
                if rule.needed & groups == rule.needed and not rule.excluded & groups
            ]
            if fitting:
                home = self._home(rules, row)
                alternative = self._raw[home]["any"][place]
                needed = [name for name in alternative.split() if name[0] not in "-~"]
                entries = set.intersection(*(self._entries(part, needed) for part in fitting))
                return [Unit("rule", alternative, str(home)), *sorted(entries)]
        raise AssertionError(f"no rule of {row.reason!r} fits {text!r}")

    def _home(self, rules: list[Any], row: Any) -> int:
        """Find the place of a row in texts.toml by its rules."""
        return next(
            place
            for place, raw in enumerate(self._raw)
            if raw["reason"] == row.reason
            and [self._texts.VOCABULARY.rule(words, row) for words in raw["any"]] == rules
        )

    def _sentences(self, text: str) -> list[list[str]]:
        """Cut a text as the package does, into the tokens of each sentence."""
        parts: list[list[str]] = [[]]
        for token in self._texts._TOKEN.findall(text.translate(self._texts._PLAIN)):
            if self._texts.VOCABULARY.word(token).stops:
                parts.append([])
            else:
                parts[-1].append(token)
        return [part for part in parts if part]

    def _entries(self, tokens: list[str], groups: list[str]) -> set[Unit]:
        """Name the entries that stand alone for their group in a sentence."""
        words = self._words(tokens)
        needed: set[Unit] = set()
        for group in groups:
            present = [e for e in self._texts.GROUPS[group] if self._stands(e, words)]
            if not present:
                raise AssertionError(f"no entry of {group!r} in {tokens!r}")
            if len(present) == 1:
                needed.add(Unit("word", present[0], group))
        return needed

    def _words(self, tokens: list[str]) -> list[str]:
        """Take names apart; what says nothing leaves a gap, which no phrase bridges."""
        words: list[str] = []
        for token in tokens:
            if not token.isascii() or "'" in token:
                words.append(token.lower())
            elif token[-1].isdigit() and not token[0].isalpha():
                words.append("-#" if token[0] == "-" else self._texts._NUMBER)
            elif token.lower() in self._texts._BETWEEN or any(
                self._texts.VOCABULARY.word(token)[:3]
            ):
                words += [part.lower() for part in self._texts._PART.findall(token)]
            else:
                words.append("")
        return words

    def _stands(self, entry: str, words: list[str]) -> bool:
        first, _, second = entry.translate(self._texts._PLAIN).partition(" ")
        if not second:
            return any(self._fits(first, word) for word in words)
        return any(
            self._fits(first, word)
            and any(self._fits(second, word) for word in self._beside(after))
            for word, *after in (words[place:] for place in range(len(words)))
        )

    def _beside(self, words: list[str]) -> list[str]:
        """List what may end a phrase: the next word, and the one behind verbs of being."""
        behind = list(takewhile(self._texts._BETWEEN.__contains__, words))
        return words[: len(behind) + 1]

    def _fits(self, entry: str, word: str) -> bool:
        if word >= self._texts._RUNS:
            return entry in word
        if entry == "not" and (word == "cannot" or word.endswith("n't")):
            return True
        stem = entry.removesuffix("*")
        return word == entry or (stem != entry and word.startswith(stem))


def _number(step: _Step) -> list[Unit]:
    """Name what stands for the status where no status is stated: a generic code, or a class."""
    if step.generics:
        return [Unit("generic code", step.generics[0][0])]
    return [Unit("class name", step.facts.row.name)] if step.facts.row is not None else []


# --- asking, in processes of their own


def in_child(folder: Path, task: Callable[[], Any]) -> Any:
    """Fork, put a folder first on the import path, run the task there, and return its JSON.

    Args:
        folder: What holds the package.
        task: Imports the package only when it runs.

    Raises:
        RuntimeError: The task failed; its traceback is on stderr.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            sys.path.insert(0, str(folder))
            with os.fdopen(writer, "w", encoding="utf-8") as pipe:
                json.dump(task(), pipe)
            code = 0
        except Exception:  # noqa: BLE001  os._exit would swallow it
            traceback.print_exc()
        finally:
            os._exit(code)  # SDKs leave threads behind that this process does not have
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as pipe:
        result = pipe.read()
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError(f"the classifier in {folder} could not be asked")
    return json.loads(result)


def gather(folder: Path, cases: list[Case]) -> Evidence:
    """Ask about all records, and find the units that each answer needs."""

    def task() -> dict[str, Any]:
        tracer = _Tracer()
        return {record["id"]: tracer.ask(error) for record, error in cases}

    answers = in_child(folder, task)
    return Evidence(
        {name: Answer(*answer) for name, (answer, _) in answers.items()},
        {name: [Unit(*unit) for unit in units] for name, (_, units) in answers.items()},
    )


def ask(folder: Path, cases: list[Case]) -> dict[str, Answer]:
    """Ask the classifier in a folder about some records."""

    def task() -> dict[str, Any]:
        package: Any = import_module(PACKAGE)
        if not Path(package.__file__).is_relative_to(folder):
            raise AssertionError(f"{package.__file__} is not the reduced copy")
        failures = ((record["id"], package.classify(error)) for record, error in cases)
        return {name: (f.kind.value, f.switchable, f.transient) for name, f in failures}

    return {name: Answer(*answer) for name, answer in in_child(folder, task).items()}


def leave_out(tables: dict[str, Table], units: Iterable[Unit]) -> dict[str, Table]:
    """Return the tables without some units."""
    gone = set(units)
    codes, names, texts = tables["codes"], tables["names"], tables["texts"]

    def without(sort: str, entries: list[str], home: str = "") -> list[str]:
        return [entry for entry in entries if Unit(sort, entry, home) not in gone]

    def named(rows: list[Table]) -> list[Table]:
        def is_kept(entry: str) -> bool:
            return Unit("class name", entry.partition(": ")[0]) not in gone

        return [row | {"names": [*filter(is_kept, row["names"])]} for row in rows]

    return {
        "codes": codes
        | {
            "code": [row | {"keys": without("code", row["keys"])} for row in codes["code"]],
            "generic": {
                status: without("generic code", keys) for status, keys in codes["generic"].items()
            },
        },
        "names": names | {"name": named(names["name"]), "ending": named(names["ending"])},
        "texts": texts
        | {
            "words": {
                group: without("word", entries, group) for group, entries in texts["words"].items()
            },
            "text": [
                row | {"any": without("rule", row["any"], str(place))}
                for place, row in enumerate(texts["text"])
            ],
        },
        "tongues": {
            tongue: [
                {group: without("word", entries, group) for group, entries in words.items()}
                for words in rows
            ]
            for tongue, rows in tables["tongues"].items()
        },
    }


def to_toml(table: Table) -> str:
    """Write a table: JSON's strings, numbers, booleans and lists are TOML's, too."""
    tables = {
        name: value
        for name, value in table.items()
        if isinstance(value, dict) or (value and isinstance(value[0], dict))
    }
    # What stands in no table comes before all that do.
    lines = [f"{name} = {json.dumps(table[name])}" for name in table.keys() - tables.keys()]
    for name, value in tables.items():
        for entry in value if isinstance(value, list) else [value]:
            lines.append(f"[[{name}]]" if isinstance(value, list) else f"[{name}]")
            lines += [f"{key} = {json.dumps(v, ensure_ascii=False)}" for key, v in entry.items()]
    return "\n".join(lines) + "\n"


def read_tables(folder: Path) -> dict[str, Table]:
    """Read the tables that hold units."""
    return {
        name: tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
        for name in ("codes", "names", "texts", "tongues")
    }


def left_out_answers(package: Path, cases: list[Case], evidence: Evidence) -> dict[str, Answer]:
    """Ask about each provider's records what the tables say without that provider's units."""
    own: dict[str, list[Unit]] = defaultdict(list)
    for unit, providers in evidence.witnesses(cases).items():
        if len(providers) == 1:
            own[providers[0]].append(unit)
    answers = dict(evidence.answers)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        copy = folder / PACKAGE
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        tables = read_tables(package / "_classify" / "tables")
        for provider, units in own.items():
            for table, reduced in leave_out(tables, units).items():
                path = copy / "_classify" / "tables" / f"{table}.toml"
                path.write_text(to_toml(reduced), encoding="utf-8")
            answers |= ask(folder, [case for case in cases if case.record["provider"] == provider])
    return answers


# --- figures


def _share(hits: Iterable[bool]) -> float:
    counted = [*hits]
    return sum(counted) / len(counted) if counted else float("nan")


def _right(record: dict[str, Any], answer: Answer) -> tuple[bool, bool]:
    """Return whether the kind is right, and whether the switch is."""
    return answer.kind == record["label"], answer.switch == record["fallback"].startswith("yes")


def figures(records: list[dict[str, Any]], answers: dict[str, Answer]) -> dict[str, float]:
    """Return the figures as the collection's score.py defines them."""
    pairs = [(record, answers[record["id"]]) for record in records]
    due = [(record, answer) for record, answer in pairs if record["fallback"].startswith("yes")]
    stay = [answer for record, answer in pairs if not record["fallback"].startswith("yes")]
    hits = sum(answer.switch for _, answer in due)
    switched = sum(answer.switch for _, answer in pairs)
    recall, specificity = _share(a.switch for _, a in due), _share(not a.switch for a in stay)
    return {
        "balanced": (recall + specificity) / 2,
        "precision": hits / switched if switched else float("nan"),
        "kind": _share(_right(*pair)[0] for pair in pairs),
        "retry": _share(a.retry == (record["retry_same"] == "yes") for record, a in due),
    }


class Report(NamedTuple):
    """Hold all figures.

    Args:
        plain: Of all records, by the whole tables.
        left_out: Of all records, each by tables that its provider taught nothing.
        providers: Of each provider, and of those with few records together.
        stands: How many records stand on a unit with one witness, by the sort of the unit.
        lonely: The units with one witness, those that most records need first.
        witnesses: The providers of each unit.
    """

    plain: dict[str, float]
    left_out: dict[str, float]
    providers: dict[str, dict[str, float]]
    stands: dict[str, dict[str, float]]
    lonely: list[dict[str, Any]]
    witnesses: list[dict[str, Any]]

    def __str__(self) -> str:
        lines = [_line("", *self.plain)]
        lines.append(_line("plain", *self.plain.values()))
        lines.append(_line("one provider left out", *self.left_out.values()))
        lines += ["", _line("provider", "n", "switch", "left out", "kind", "left out")]
        lines += [_line(name, *row.values()) for name, row in self.providers.items()]
        lines += ["", _line("on a unit of one provider", *("n", "share", "- kind", "- switch"))]
        lines += [_line(name, *row.values()) for name, row in self.stands.items()]
        lines += ["", "the units of one provider that most records need"]
        for unit in self.lonely[:MOST]:
            name = f"{unit['name']} ({unit['home']})" if unit["home"] else unit["name"]
            lines.append(f"{unit['records']:4d}  {unit['provider']:26s}{unit['sort']:13s}{name}")
        return "\n".join(lines)


def _line(name: str, *cells: float | str) -> str:
    shown = (f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells)
    return f"{name:30s}" + "".join(f"{cell:>10s}" for cell in shown)


def report(cases: list[Case], evidence: Evidence, left_out: dict[str, Answer]) -> Report:
    """Put the figures together."""
    records = [record for record, _ in cases]
    plain = evidence.answers
    witnesses = evidence.witnesses(cases)
    lonely = {unit for unit, providers in witnesses.items() if len(providers) == 1}
    sizes = Counter(record["provider"] for record in records)
    groups: dict[str, list[dict[str, Any]]] = {
        p: [] for p, n in sizes.most_common() if n >= OWN_ROW
    }
    few = f"{len(sizes) - len(groups)} with fewer than {OWN_ROW}"
    for record in records:
        provider = record["provider"]
        groups.setdefault(provider if provider in groups else few, []).append(record)

    def rates(part: list[dict[str, Any]], answers: dict[str, Answer]) -> tuple[float, float]:
        pairs = [_right(record, answers[record["id"]]) for record in part]
        return _share(kind for kind, _ in pairs), _share(switch for _, switch in pairs)

    providers: dict[str, dict[str, float]] = {}
    for name, part in groups.items():
        (kind, switch), (kind_left, switch_left) = rates(part, plain), rates(part, left_out)
        providers[name] = {
            "n": len(part),
            "switch": switch,
            "switch_left_out": switch_left,
            "kind": kind,
            "kind_left_out": kind_left,
        }
    stands: dict[str, dict[str, float]] = {}
    for sort in (*SORTS, "any of them"):
        on = [
            record
            for record in records
            if any(
                u in lonely and sort in (u.sort, "any of them")
                for u in evidence.units[record["id"]]
            )
        ]
        before = [_right(record, plain[record["id"]]) for record in on]
        after = [_right(record, left_out[record["id"]]) for record in on]
        lost = [(b[0] and not a[0], b[1] and not a[1]) for b, a in zip(before, after, strict=True)]
        stands[sort] = {
            "n": len(on),
            "share": len(on) / len(records),
            "lose_kind": sum(kind for kind, _ in lost),
            "lose_switch": sum(switch for _, switch in lost),
        }
    carried = Counter(unit for record in records for unit in set(evidence.units[record["id"]]))
    return Report(
        figures(records, plain),
        figures(records, left_out),
        providers,
        stands,
        [
            {**unit._asdict(), "provider": witnesses[unit][0], "records": count}
            for unit, count in sorted(carried.items(), key=lambda pair: (-pair[1], pair[0]))
            if unit in lonely
        ],
        [{**unit._asdict(), "providers": names} for unit, names in sorted(witnesses.items())],
    )


# --- the command


def read_cases(corpus: Path) -> list[Case]:
    """Build the exception of each record that raises one."""
    sys.path.insert(0, str(corpus))
    materialise = import_module("to_exceptions").materialise
    lines = (corpus / "errors.dev.jsonl").read_text(encoding="utf-8").splitlines()
    records: list[dict[str, Any]] = [json.loads(line) for line in lines]
    cases = [
        Case(record, error) for record in records if (error := materialise(record)) is not None
    ]
    if PACKAGE in sys.modules:
        raise RuntimeError(f"{PACKAGE} is imported already: no other tables could be read")
    return cases


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", type=Path, help="the folder of the collection")
    parser.add_argument("--json", type=Path, help="write the figures and all witnesses here")
    options = parser.parse_args()
    if not hasattr(os, "fork"):
        sys.stdout.write("leave one out: skipped, this system cannot fork\n")
        return
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        parser.error(f"{PACKAGE} is not to be found: set PYTHONPATH")
    package = Path(spec.origin).resolve().parent
    cases = read_cases(options.corpus.resolve())
    evidence = gather(package.parent, cases)
    result = report(cases, evidence, left_out_answers(package, cases, evidence))
    sys.stdout.write(f"\nLeave one provider out, {len(cases)} records\n\n{result}\n")
    if options.json:
        options.json.write_text(json.dumps(result._asdict(), indent=1), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # some SDKs leave threads behind that would be waited for


if __name__ == "__main__":
    main()
