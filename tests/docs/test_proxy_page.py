"""The handler of docs/proxy.md is one that the Proxy can load."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import honcho_fallback_litellm

PAGE = (Path(__file__).parents[2] / "docs" / "proxy.md").read_text(encoding="utf-8")


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
