"""A provider's message, fit for a log: one short line without keys and control characters."""

from __future__ import annotations

import re

from honcho_fallback._classify._tables import WORDS

_CAP = 200
_READ = 400  # more than is shown, so that a secret at the cut is still recognised
_LONG = 12  # no real secret is shorter than this
_CERTAIN = 20  # without a dash, only what is as long as this
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
    r"\b(?:api[-_ ]?key|x-api-key|access[-_]token|client[-_]secret|secret|password|token)\b"
    r"(?:\s+provided)?[\"']?\s*[:=]\s*[\"']?)[^\s\"'&,;)]+"
)
_HINTS = WORDS["secret_hints"]


def redact(message: str) -> str:
    """Return one line of at most 200 characters without anything that looks like a secret."""
    words = message[:_READ].split()
    if len(message) > _READ and len(words) > 1:
        words.pop()  # cut in the middle, so no longer recognisable
    text = " ".join(words)
    if not text.isprintable():
        text = "".join(filter(str.isprintable, text))
    lowered = text.lower()
    if any(map(lowered.__contains__, _HINTS)):
        text = _AFTER.sub(lambda match: match[1] + _MARK, text)
    for word in text.split(" "):
        if len(word) >= _LONG and (len(word) >= _CERTAIN or "-" in word or "_" in word):
            clean = _SECRET.sub(_MARK, word)
            if clean != word:
                text = text.replace(word, clean)
    return text if len(text) <= _CAP else text[: _CAP - 1] + "…"
