"""A provider, as far as others differ from it: what stands in ``providers.toml``."""

from __future__ import annotations

import re
import tomllib
from collections import deque
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOBODY = "nobody"
_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")
_MARKED_INSIDE = frozenset({"content", "extras", "metadata"})
_HEADER_SETTINGS = frozenset({"default_headers", "extra_headers", "headers"})


class Provider(NamedTuple):
    """Say what of a request a provider takes; made by ``named``.

    Args:
        family: The name of its message format, under which the table knows it.
        is_known: Whether the table has anything to say of it.
        per_account: Whether what it writes beside text is for the account that it was written for.
        markers: Keys of blocks and tools, such as ``cache_control``, that it is not known to take.
    """

    family: str
    is_known: bool
    per_account: bool
    markers: frozenset[str]

    @classmethod
    def named(cls, name: str) -> Provider:
        """Return a provider by any of its names.

        Args:
            name: As a target, a trace or an integration calls it, such as ``"azure"``.
        """
        return _provider(name.lower())

    def settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return per-call settings that were written for another provider, as this one takes them.

        A setting that only some providers know stays with them, headers alike; what belongs to an
        account goes to nobody else. Whatever is in no table travels.

        Args:
            settings: Names with values; left as they are.
        """
        known = takers("settings")
        kept = {
            name: value
            for name, value in settings.items()
            if name not in known or self.family in known[name]
        }
        for name in _HEADER_SETTINGS & kept.keys():
            kept[name] = self._headers(kept[name])
            if not kept[name]:
                del kept[name]
        if isinstance(kept.get("tools"), list):
            kept["tools"] = self.unmarked(kept["tools"])
        return kept

    def unmarked(self, part: Any) -> Any:
        """Return blocks or tools without other providers' markers, the same object where none is.

        Args:
            part: A block, a tool, or a list of them.
        """
        return without_markers(part, self.markers)

    def may_have_written(self, block_type: str) -> bool:
        """Tell whether a block of this type may be this provider's own."""
        writers = takers("blocks").get(block_type)
        return writers is None or self.family in writers

    def call_ids(self) -> CallIds | None:
        """Return what makes the ids of one history's tool calls valid here, or None if any is."""
        row = _tables().get(self.family, {})
        return CallIds(row["call_id"], row["call_id_length"]) if "call_id" in row else None

    def _headers(self, headers: Any) -> dict[str, Any] | None:
        if not hasattr(headers, "items"):
            return None  # in a form that cannot be told apart, a key would go to another provider
        return {
            name: value
            for name, value in headers.items()
            if all(
                self.family in families
                for start, families in takers("headers").items()
                if str(name).lower().startswith(start)
            )
        }


class CallIds:
    """Make the ids of a history's tool calls valid and distinct; results follow their calls.

    Servers that number the calls of each answer anew, and histories written by hand, repeat ids.
    The first call keeps a valid one.

    Args:
        pattern: What an id must look like.
        length: Of the ids that are made up, in characters.
    """

    __slots__ = ("_counts", "_length", "_pattern", "_results")

    def __init__(self, pattern: str, length: int) -> None:
        self._pattern, self._length = re.compile(pattern), length
        self._counts: dict[str, int] = {}
        self._results: dict[str, deque[str]] = {}  # of renamed calls that have no result yet

    def of_calls(self, call_ids: Sequence[str], *, own: bool = False) -> list[str]:
        """Return the ids that one answer's calls get, in order.

        Args:
            call_ids: Those that they have.
            own: Whether the provider wrote them itself: then they are valid whatever they are.
        """
        new_ids: list[str] = []
        for call_id in call_ids:
            number = self._counts[call_id] = self._counts.get(call_id, -1) + 1
            new_id = call_id
            if number or not (own or self._pattern.fullmatch(call_id)):
                numbered = f"{call_id} {number}" if number else call_id
                new_id = sha256(numbered.encode(errors="surrogatepass")).hexdigest()[
                    : self._length
                ]
            new_ids.append(new_id)
        if new_ids != [*call_ids]:
            self._results |= {call_id: deque() for call_id in call_ids}
            for call_id, new_id in zip(call_ids, new_ids, strict=True):
                self._results[call_id].append(new_id)
        return new_ids

    def of_result(self, call_id: str) -> str:
        """Return the id that the next result of a call gets."""
        new_ids = self._results.get(call_id)
        if not new_ids:
            return call_id
        return new_ids.popleft() if len(new_ids) > 1 else new_ids[0]


def route_in(settings: Mapping[Any, Any], model: str = "") -> str | None:
    """Name the setting of a request that chooses by itself who answers, or None.

    A target's labels are true of whom it describes. A request that names another model, address or
    account may reach anybody: where labels are required, pass the target as ``unfit``.

    Args:
        settings: The request's own, headers included, beside what the target was made with; left
            as they are.
        model: The target's, which a request may name.
    """
    routes = takers("routes").keys()
    for name, value in settings.items():
        if value is None or value == model:
            continue
        words = [word.lower() for word in _WORD.findall(str(name))]
        if not routes.isdisjoint((*words, "_".join(words))):
            return str(name)
        if words[:1] == ["extra"] or words[-1:] == ["headers"]:
            # What is no mapping cannot be looked into.
            inside = route_in(value, model) if isinstance(value, Mapping) else "its content"
            if inside is not None:
                return f"{name}: {inside}"
    return None


def without_markers(part: Any, markers: frozenset[str]) -> Any:
    """Return blocks without some keys; a block that held nothing else goes, too."""
    if isinstance(part, list):
        cleaned = [without_markers(one, markers) for one in part]
        if all(new is old for new, old in zip(cleaned, part, strict=True)):
            return part
        return [new for new, old in zip(cleaned, part, strict=True) if new or new is old]
    if not isinstance(part, dict):
        return part
    block: dict[Any, Any] = part
    if not markers.isdisjoint(block):
        block = {name: value for name, value in block.items() if name not in markers}
    for name in _MARKED_INSIDE & block.keys():
        inside = without_markers(block[name], markers)
        if inside is not block[name]:
            block = {**block, name: inside}
    return block


@cache
def _tables() -> dict[str, dict[str, Any]]:
    path = Path(__file__).with_name("providers.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def takers(column: str) -> dict[str, frozenset[str]]:
    """Give each entry of a column the families that have it; nobody's stands for no family."""
    families: dict[str, set[str]] = {}
    for family, row in _tables().items():
        for entry in row.get(column, ()):
            families.setdefault(entry, set()).update({family} - {_NOBODY})
    return {entry: frozenset(names) for entry, names in families.items()}


@cache
def _provider(name: str) -> Provider:
    names = {other: family for family, row in _tables().items() for other in row.get("names", ())}
    family = names.get(name, name)
    row = _tables().get(family, {})
    others = (marker for marker, takers in takers("markers").items() if family not in takers)
    return Provider(family, bool(row), row.get("per_account", False), frozenset(others))
