"""``honcho-fallback simulate``: one incident, several policies, a table."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from honcho_fallback import FallbackConfigError
from honcho_fallback.simulate import compare, load_policy, load_scenario, replay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from honcho_fallback.simulate import Comparison


def play(source: str, policies: Sequence[str], seed: int, calls: int | None) -> Comparison:
    """Play an incident under each policy; without one, under those compared by default.

    Raises:
        FallbackConfigError: A file is wrong, or two policies share a name.
    """
    stem, suffix, _ = Path(source).name.partition(".jsonl")  # rotated files have more
    is_record = suffix or _begins_as_a_record(source)
    scenario = replay(source, name=stem) if is_record else load_scenario(source)
    loaded = [load_policy(policy) for policy in policies]
    names = [name for name, _ in loaded]
    for path, name in zip(policies, names, strict=True):
        if names.count(name) > 1:
            fix = "give one of them another name"
            raise FallbackConfigError.about(f"{path}: name", f"{name!r} is there twice", fix)
    return compare(scenario, dict(loaded) or None, seed=seed, calls=calls)


def _begins_as_a_record(source: str) -> bool:
    """Tell whether a file begins as no TOML does."""
    with suppress(OSError), Path(source).open("rb") as file:
        return file.read(1) == b"{"
    return False
