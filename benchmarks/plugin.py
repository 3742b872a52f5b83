"""This package as subjects of another bench that asks a plug-in for ``subjects(...)``.

Without addresses: for overhead, ``{name: (family, happy, failover)}`` of coroutine functions. With
the base URLs of a primary and a fallback: for failover, ``{name: coroutine function}``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from failover import langchain_models, litellm_routers, sdk  # after the path
from failover.subject import Place  # as above
from honcho_fallback import Attempt, FallbackPolicy, Target
from overhead import abad, agood  # as above

_TIMEOUT = 1.0


def subjects(primary_url: str | None = None, fallback_url: str | None = None) -> dict[str, Any]:
    """Return this package's rows.

    Args:
        primary_url: Ends in ``/v1``, or None for overhead.
        fallback_url: The same.
    """
    if primary_url is None or fallback_url is None:
        return _overhead()
    place = Place(primary_url, fallback_url, _TIMEOUT)
    ours = (
        subject
        for family in (sdk, langchain_models, litellm_routers)
        for subject in family.SUBJECTS
        if subject.ours
    )
    made = {subject.name: subject.make(place) for subject in ours}
    return {name: ready.ask for name, ready in made.items() if not ready.sync}


def _overhead() -> dict[str, Any]:
    policy = FallbackPolicy([Target("big", provider="one"), Target("small", provider="two")])

    async def happy(_: Attempt) -> str:
        return await agood()

    async def failing(attempt: Attempt) -> str:
        return await (abad() if attempt.position == 0 else agood())

    row = ("plain", lambda: policy.acall(happy), lambda: policy.acall(failing))
    return {"honcho_fallback policy.acall": row}
