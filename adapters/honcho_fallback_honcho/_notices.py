"""What is wrong with a configuration, fit to be shown: names, hosts and advice, never values."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["ignored", "partial", "key", "target", "note"]


class Notice(NamedTuple):
    """Say what is wrong, where, and what to do.

    Args:
        kind: ``ignored``: a name that nothing reads; ``partial``: a fallback that is not complete;
            ``key``: a key that is missing or withheld; ``target``: a target that cannot help;
            ``note``: nothing is wrong.
        name: The variable.
        problem: What is wrong.
        fix: What to do.
        agents: The agents that it concerns.
        breaks_fallback: Whether a fallback could not work for it.
    """

    kind: Kind
    name: str
    problem: str
    fix: str
    agents: tuple[str, ...] = ()
    breaks_fallback: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.problem}; {self.fix}"


def merged(notices: list[Notice]) -> tuple[Notice, ...]:
    """Merge equal notices into one, for all the agents that they concern."""
    by_text: dict[tuple[str, str, str], Notice] = {}
    for notice in notices:
        key = (notice.name, notice.problem, notice.fix)
        known = by_text.get(key)
        if known is not None:
            agents = tuple(dict.fromkeys((*known.agents, *notice.agents)))
            breaks = known.breaks_fallback or notice.breaks_fallback
            notice = known._replace(agents=agents, breaks_fallback=breaks)  # noqa: PLW2901 # the union of both
        by_text[key] = notice
    return tuple(by_text.values())
