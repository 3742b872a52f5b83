"""Ids of tool calls that every wire takes."""

from __future__ import annotations

import hashlib
import re

# Anthropic takes these signs only, OpenAI 40 of them.
_FINE = re.compile(r"[A-Za-z0-9_-]{1,40}")


def wire_id(call_id: str) -> str:
    """Return an id as it is, or one made from it; the same each time."""
    if _FINE.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:24]}"
