"""Executable documentation: LiteLLM's own ways to fall back, beside the strategy.

Each test says how many requests each mode makes, who answers, and how long LiteLLM meant to sleep
(its sleeps are noted and skipped).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import litellm
import pytest

from tests.helpers.litellm_runs import ASKED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.provider import ProviderServer


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Note LiteLLM's sleeps between attempts instead of sleeping."""
    noted: list[float] = []
    if not hasattr(litellm.Router, "_time_to_sleep_before_retry"):
        pytest.skip("this LiteLLM sleeps where nobody can look")
    own = litellm.Router._time_to_sleep_before_retry

    def note(self: Any, *args: Any, **kwargs: Any) -> float:
        noted.append(own(self, *args, **kwargs))
        return 0

    monkeypatch.setattr(litellm.Router, "_time_to_sleep_before_retry", note)
    return noted


def fallbacks(bench: Any, **options: Any) -> Any:
    """Put each provider into a group of its own."""
    models = [
        bench.deployment("primary", None),
        bench.deployment("backup", None, group="backups"),
    ]
    return bench.router(models, fallbacks=[{"deriver": ["backups"]}], **options)


def ordered(bench: Any, **options: Any) -> Any:
    """Let `order` say who comes first in one group."""
    models = [
        bench.deployment(name, None, order=place)
        for place, name in enumerate(["primary", "backup"], start=1)
    ]
    return bench.router(models, **options)


def ours(bench: Any, **options: Any) -> Any:
    """Let the strategy."""
    return bench.managed(**options)[0]


MODES: dict[str, Callable[..., Any]] = {
    "fallbacks": fallbacks,
    "fallbacks, num_retries=0": lambda bench: fallbacks(bench, num_retries=0),
    "order, num_retries=0": lambda bench: ordered(bench, num_retries=0),
    "ours": ours,
}


def asked(bench: Any, mode: str) -> str:
    """Ask once, and say who was asked and what came out."""
    router = MODES[mode](bench)

    async def ask() -> str:
        try:
            answer = await router.acompletion(**ASKED)
        except Exception as error:  # noqa: BLE001 # its name is what is documented
            return type(error).__name__
        return str(answer.choices[0].message.content)

    out = asyncio.run(_closing(ask()))
    return f"{' '.join(bench.providers.order)}: {out}"


async def _closing(coroutine: Any) -> Any:
    from litellm.llms.custom_httpx.async_client_cleanup import (  # noqa: PLC0415 # after conftest
        close_litellm_async_clients,
    )

    try:
        return await coroutine
    finally:
        await close_litellm_async_clients()


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("fallbacks", "primary backup: hello from backup"),
        ("fallbacks, num_retries=0", "primary backup: hello from backup"),
        ("order, num_retries=0", "primary backup: hello from backup"),
        ("ours", "primary: BadRequestError"),
    ],
)
def test_a_wrong_request(mode: str, told: str, bench: Any, providers: ProviderServer) -> None:
    """400: LiteLLM sends the caller's mistake to the fallback as well; the strategy does not."""
    providers["primary"].fail(400)
    assert asked(bench, mode) == told


@pytest.mark.parametrize(
    ("mode", "told", "sleeps"),
    [
        ("fallbacks", "primary primary primary backup: hello from backup", True),
        ("fallbacks, num_retries=0", "primary backup: hello from backup", False),
        ("order, num_retries=0", "primary backup: hello from backup", False),
        ("ours", "primary backup: hello from backup", False),
    ],
)
def test_retry_after(
    mode: str, told: str, sleeps: bool, bench: Any, providers: ProviderServer, slept: list[float]
) -> None:
    """429 with Retry-After 3: LiteLLM's default waits it out, twice, before it asks the other."""
    providers["primary"].fail(429, headers={"retry-after": "3"})
    if mode == "fallbacks":
        # The lone deployment cools down at once, which would hide the waiting.
        MODES_OPTIONS = {"disable_cooldowns": True}  # noqa: N806 # reads as the option it is
        router = fallbacks(bench, **MODES_OPTIONS)
        asyncio.run(_closing(router.acompletion(**ASKED)))
        said = f"{' '.join(providers.order)}: hello from backup"
    else:
        said = asked(bench, mode)
    assert said == told
    assert (sum(slept) >= 6) == sleeps
    assert any(slept) == sleeps


def test_two_deployments_of_which_one_answers_500(bench: Any, providers: ProviderServer) -> None:
    """A plain group shuffles: it meets the bad one again and again, and sometimes only that one.

    A 500 does not cool down. The strategy meets it once per call, and always goes on.
    """
    providers["primary"].fail(500)
    plain = bench.router([bench.deployment(name, None) for name in ("primary", "backup")])

    async def ask_often(router: Any) -> int:
        failed = 0
        for _ in range(30):
            try:
                await router.acompletion(**ASKED)
            except litellm.InternalServerError:
                failed += 1
        return failed

    asyncio.run(_closing(ask_often(plain)))
    met = len(providers["primary"].requests)
    assert met > 0
    providers.reset()
    providers["primary"].fail(500)

    failed = asyncio.run(_closing(ask_often(ours(bench, disable_cooldowns=True))))

    assert failed == 0
    assert len(providers["primary"].requests) == len(providers["backup"].requests) == 30
