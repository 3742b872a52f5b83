"""Tables of the documentation that tests make: a page shows what came out today."""

from __future__ import annotations

import os
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def assert_shown(page: str, name: str, shown: str) -> None:
    """Compare what stands on a page between two comments; ``WRITE_TABLES=1`` writes it anew."""
    path = DOCS / page
    text = path.read_text("utf-8")
    block = re.compile(f"(<!-- {name} -->\n+)(.*?)(\n+<!-- (?:/|end of ){name} -->)", re.DOTALL)
    if os.environ.get("WRITE_TABLES"):
        text = block.sub(lambda found: found[1] + shown + found[3], text)
        path.write_text(text, encoding="utf-8")
    assert [found[2] for found in block.finditer(text)] == [shown], "run it with WRITE_TABLES=1"
