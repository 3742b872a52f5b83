"""A policy as a TOML file: presets, options, and mistakes named with their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from honcho_fallback import Cooldown, FallbackConfig, FallbackConfigError, RetryBudget
from honcho_fallback.simulate import load_policy, retry_then_next

if TYPE_CHECKING:
    from pathlib import Path


def loaded(tmp_path: Path, text: str) -> FallbackConfig:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    name, config = load_policy(path)
    assert name == "mine"
    assert isinstance(config, FallbackConfig)
    return config


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    """Named after the file."""
    assert loaded(tmp_path, "") == FallbackConfig()


def test_a_preset_and_its_changes(tmp_path: Path) -> None:
    """Options come on top; tables make objects; false takes out what the preset has."""
    config = loaded(
        tmp_path,
        """
        preset = "resilient"
        deadline = false
        timeout = 7
        wait = 1.5
        must_not_degrade = false
        cooldown = { base = 5, cap = 50 }
        retry_budget = false
        transport_recovery = {}
        switch_after = { rate_limit = 2 }
        fallback_on = ["rate_limit"]
        """,
    )
    assert (config.deadline, config.timeout, config.reset) == (None, 7.0, "turn")
    assert isinstance(config.cooldown, Cooldown)
    assert (config.cooldown.base, config.cooldown.cap) == (5.0, 50.0)
    assert config.retry_budget is None
    assert config.transport_recovery is not None
    assert config.first_token_timeout == 10.0
    assert config.must_not_degrade is False
    assert {*config.fallback_on} == {"rate_limit"}
    table = "retry_budget = { ratio = 0.2 }"
    assert isinstance(loaded(tmp_path, table).retry_budget, RetryBudget)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tiemout = 3", "mine.toml: tiemout: no such option; did you mean timeout"),
        ("timeout = -3", "mine.toml: timeout: got -3; pass seconds"),
        ("cooldown = 5", "mine.toml: cooldown: got 5; pass "),
        (
            "cooldown = { bas = 5 }",
            "mine.toml: cooldown: got an unexpected keyword argument 'bas'",
        ),
        ("cooldown = { base = -5 }", "mine.toml: base: got -5; pass seconds"),
        ("preset = 'resiliant'", "mine.toml: resiliant: no such preset; did you mean resilient"),
        ("name = ", "mine.toml: no TOML"),
        *(
            (f"{key} = 'os:system'", rf"mine.toml: {key}: got 'os:system' \(str\); pass a ")
            for key in ("refine", "validate")
        ),
        ("wait = 'os:system'", r"mine.toml: wait: got 'os:system' \(str\); pass a tenacity wait"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    """What was wrong, where, and what to do; what names code is refused, never imported."""
    with pytest.raises(FallbackConfigError, match=message):
        loaded(tmp_path, text)


def test_names() -> None:
    """Presets and the peer need no file; an unknown name lists them."""
    names = ("default", "resilient", "honcho", "hermes", "retry-then-next")
    policies: dict[str, Any] = dict(load_policy(name) for name in names)
    assert policies["default"].cooldown is None
    assert policies["resilient"].cooldown is not None
    assert policies["hermes"].reset == "turn"
    assert policies["retry-then-next"].switch_after == retry_then_next().switch_after == 3
    with pytest.raises(FallbackConfigError, match=r"resiliant: no such file .*mean resilient"):
        load_policy("resiliant")
