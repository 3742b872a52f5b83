"""What the commands on Honcho's settings read: the environment, a .env file, a config.toml."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from honcho_fallback import FallbackConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from honcho_fallback.settings._load import HonchoSettings


def read_honcho(env_file: Path | None, toml: Path | None) -> HonchoSettings:
    """Read the settings as Honcho would, where the .env file wins over the environment."""
    from honcho_fallback.settings._load import (  # noqa: PLC0415 # only these commands need it
        read_settings,
    )

    environ = dict(os.environ)
    if env_file is not None:
        environ.update(_dotenv(env_file))
    return read_settings(environ, toml)


def _dotenv(path: Path) -> dict[str, str]:
    try:
        dotenv: Any = import_module("dotenv")  # comes with pydantic-settings
    except ModuleNotFoundError as missing:
        raise ImportError(
            "python-dotenv is not installed: pip install 'honcho-fallback[settings]', "
            "in a checkout pip install '.[settings]'",
            name="dotenv",
        ) from missing
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise FallbackConfigError.about(
            "--env-file", f"{path} cannot be read", "check the path"
        ) from None
    from io import StringIO  # noqa: PLC0415 # as above

    values: dict[str, str | None] = dotenv.dotenv_values(stream=StringIO(text))
    return {name: value for name, value in values.items() if value is not None}
