"""The handler of docs/proxy.md is one that the Proxy can load."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import honcho_fallback_litellm

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "proxy.md").read_text(encoding="utf-8")


# LiteLLM's own warnings, at its import.
@pytest.mark.filterwarnings("ignore::UserWarning:pydantic")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_handler_of_the_page_is_made() -> None:
    """The module that the page shows makes a handler under the name that its YAML gives."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "my_handler"}
    exec(compile(code, "proxy.md", "exec"), names)  # noqa: S102 # our own page
    assert isinstance(names["handler"], honcho_fallback_litellm.FallbackProxyHandler)


def test_the_configurations_of_the_page_name_what_there_is() -> None:
    """The YAML's callbacks exist, and its ranks are those of one chain."""
    first, own = map(
        yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    )
    module, _, name = first["litellm_settings"]["callbacks"].rpartition(".")
    assert module == "honcho_fallback_litellm"
    assert name in honcho_fallback_litellm.__all__
    ranks = [one["model_info"]["fallback_rank"] for one in first["model_list"]]
    assert ranks == [0, 1]
    assert own["litellm_settings"]["callbacks"] == ["prometheus", "my_handler.handler"]


SHOWN = {
    "docs/proxy.md": next(
        iter(re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
    ),
    **{
        path.name: path.read_text("utf-8")
        for path in sorted((ROOT / "examples" / "litellm_proxy").glob("*.yaml"))
    },
}


@pytest.mark.parametrize("shown", SHOWN)
def test_a_hang_is_bounded_in_what_an_operator_copies(shown: str) -> None:
    """By each deployment's own timeout, or by that of the handler that the file names."""
    config = yaml.safe_load(SHOWN[shown])
    bounds = [one["litellm_params"].get("timeout") for one in config["model_list"]]
    if "production_handler.handler" in config["litellm_settings"]["callbacks"]:
        handler = (ROOT / "examples" / "litellm_proxy" / "production_handler.py").read_text(
            "utf-8"
        )
        bounds = [float(*re.findall(r"FallbackConfig\(.*?\btimeout=(\d+)", handler))]
    assert all(bound is not None and bound <= 60 for bound in bounds), bounds


def test_the_cooldowns_redis_is_not_litellms() -> None:
    """LiteLLM takes what is called REDIS in the environment, and waits 5 s for a silent one."""
    handler = (ROOT / "examples" / "litellm_proxy" / "production_handler.py").read_text("utf-8")
    read = re.findall(r"RedisCooldown\(os\.environ\[\"(\w+)\"\]", handler)
    assert [name for name in read if "REDIS" in name] == []
    assert all(f"#   {name} " in SHOWN["production.yaml"] for name in read)
    assert all(f"`{name}`" in PAGE for name in read)
