"""Where the figures come from: the machine, without its name, and the packages."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "honcho-fallback",
    "anthropic",
    "backoff",
    "haystack-ai",
    "httpx",
    "langchain",
    "langchain-core",
    "langchain-openai",
    "langfuse",
    "langgraph",
    "litellm",
    "openai",
    "pydantic",
    "pydantic-ai-slim",
    "stamina",
    "tenacity",
)


def cpu_model(cpuinfo: str) -> str:
    """Read the processor's name out of Linux's ``/proc/cpuinfo``."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine() or "unknown"


def facts(command: str) -> list[tuple[str, str]]:
    """Tell what a reader needs in order to weigh the figures."""
    cpuinfo = Path("/proc/cpuinfo")
    model = cpu_model(cpuinfo.read_text() if cpuinfo.exists() else "")
    return [
        ("command", f"`{command}`"),
        ("date", datetime.now(UTC).strftime("%Y-%m-%d")),
        ("processor", f"{model}, {os.cpu_count()} cores"),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("load at the start", f"{os.getloadavg()[0]:.1f}"),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
        ("packages", ", ".join(_named(name) for name in PACKAGES)),
    ]


def _named(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} not installed"
