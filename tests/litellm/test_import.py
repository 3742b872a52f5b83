"""What importing the adapter costs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import honcho_fallback_litellm

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("package", ["honcho_fallback", "honcho_fallback_litellm"])
def test_importing_loads_no_litellm(package: str, tmp_path: Path) -> None:
    """(12) LiteLLM takes seconds and 190 MiB; it comes with the first name that needs it."""
    code = f"import sys, {package}; assert 'litellm' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_every_name_is_there() -> None:
    """The lazy names resolve, and nothing else does."""
    for name in honcho_fallback_litellm.__all__:
        assert getattr(honcho_fallback_litellm, name).__doc__
    assert dir(honcho_fallback_litellm) == honcho_fallback_litellm.__all__
    with pytest.raises(AttributeError, match="nonsense"):
        honcho_fallback_litellm.nonsense  # noqa: B018 # the access is the test
