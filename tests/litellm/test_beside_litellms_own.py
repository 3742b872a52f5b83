"""Executable documentation: LiteLLM's own ways to fall back, beside the strategy.

Each test says how many requests each mode makes, who answers, and how long LiteLLM meant to sleep
(its sleeps are noted and skipped).
"""

from __future__ import annotations

from typing import Any

import litellm
import pytest

from tests.helpers.litellm_runs import ASKED, ask_in, run_async, text_of


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


def router_of(bench: Any, mode: str) -> Any:
    """Put each provider into a group of its own, or say by `order` or ranks who comes first."""
    if mode == "ours":
        return bench.managed()[0]
    options: dict[str, Any] = {"num_retries": 0} if "num_retries=0" in mode else {}
    models = [bench.deployment("primary", None), bench.deployment("backup", None)]
    if mode.startswith("order"):
        for place, one in enumerate(models, start=1):
            one["litellm_params"]["order"] = place
    else:
        models[1]["model_name"] = "backups"
        options["fallbacks"] = [{"deriver": ["backups"]}]
    # A lone deployment would cool down at once, which would hide the waiting.
    return bench.router(models, disable_cooldowns=True, **options)


def asked(bench: Any, mode: str) -> str:
    """Ask once, and say who was asked and what came out."""
    router = router_of(bench, mode)
    try:
        said = text_of(ask_in("async", router))
    except Exception as error:  # noqa: BLE001 # its name is what is documented
        said = type(error).__name__
    return f"{' '.join(bench.providers.order)}: {said}"


SWITCHED = "primary backup: hello from backup"
THEIRS = ("fallbacks", "fallbacks, num_retries=0", "order, num_retries=0")


@pytest.mark.parametrize(
    ("mode", "told"),
    [*((mode, SWITCHED) for mode in THEIRS), ("ours", "primary: BadRequestError")],
)
def test_a_wrong_request(mode: str, told: str, bench: Any) -> None:
    """400: LiteLLM sends the caller's mistake to the fallback as well; the strategy does not."""
    bench["primary"].fail(400)
    assert asked(bench, mode) == told


@pytest.mark.parametrize("mode", [*THEIRS, "ours"])
def test_retry_after(mode: str, bench: Any, slept: list[float]) -> None:
    """429 with Retry-After 3: LiteLLM's default waits it out, twice, before it asks the other."""
    bench["primary"].fail(429, headers={"retry-after": "3"})
    is_default = mode == "fallbacks"
    assert asked(bench, mode) == (f"primary primary {SWITCHED}" if is_default else SWITCHED)
    assert (sum(slept) >= 6) == is_default
    assert any(slept) == is_default


def test_two_deployments_of_which_one_answers_500(bench: Any) -> None:
    """A plain group shuffles: it meets the bad one again and again, and sometimes only that one.

    A 500 does not cool down. The strategy meets it once per call, and always goes on.
    """
    bench["primary"].fail(500)
    plain = bench.router([bench.deployment(name, None) for name in ("primary", "backup")])

    async def ask_often(router: Any) -> int:
        failed = 0
        for _ in range(30):
            try:
                await router.acompletion(**ASKED)
            except litellm.InternalServerError:
                failed += 1
        return failed

    run_async(ask_often(plain))
    met = len(bench["primary"].requests)
    assert met > 0
    bench.providers.reset()
    bench["primary"].fail(500)

    failed = run_async(ask_often(bench.managed(disable_cooldowns=True)[0]))

    assert failed == 0
    assert len(bench["primary"].requests) == len(bench["backup"].requests) == 30
