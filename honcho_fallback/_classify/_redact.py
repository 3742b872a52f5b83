"""What the provider said, fit for a log line: no key, no control character, one short line."""

from __future__ import annotations

import re

_CAP = 200
_READ = 800
_MARK = "[redacted]"
_SECRET = re.compile(
    r"\b(?:sk|pk|rk|ak|gsk|xai|hf|pplx|r8|nvapi|ghp|gho|ghs|glpat|fw|tgp|key|csk|esecret)"
    r"[-_][\w*.-]{6,}"
    r"|\b(?:AKIA|ASIA|AIza|ya29\.)[\w.-]{8,}"
    r"|\beyJ[\w-]{6,}(?:\.[\w-]*)*"
    r"|(?<=://)[^/\s@]+:[^/\s@]*@"
    r"|\b[A-Za-z0-9_]{32,}\b"
    r"|\b[A-Za-z0-9+/]{40,}={0,2}"
)
_AFTER = re.compile(
    r"(?i)(\b(?:bearer|basic)\s+|[?&][\w-]*(?:key|token|secret|signature|sig|password)=|"
    r"\b(?:api[-_ ]?key|x-api-key|access[-_]token|client[-_]secret|secret|password)\b"
    r"(?:\s+provided)?[\"']?\s*[:=]\s*[\"']?)[^\s\"'&,;)]+"
)
# Looked for first: most messages hold none of these words, and a search costs less than a match.
_HINTS = ("bearer", "basic ", "key", "token=", "secret", "sig", "password")


def redact(message: str) -> str:
    """Return one line of at most 200 characters without anything that looks like a secret.

    Args:
        message: What the provider said.
    """
    text = " ".join(message[:_READ].split())
    if not text.isprintable():
        text = "".join(c for c in text if c.isprintable())
    lowered = text.lower()
    if any(hint in lowered for hint in _HINTS):
        text = _AFTER.sub(rf"\1{_MARK}", text)
    text = _SECRET.sub(_MARK, text)
    return text if len(text) <= _CAP else text[: _CAP - 1] + "…"
