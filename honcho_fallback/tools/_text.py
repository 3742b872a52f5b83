"""What a tool's text means: openhuman's rules in their order, first hit wins.

Its words that also occur in ordinary text count here only with the company they keep in errors,
and a number counts as a status only where one is written: after ``http``, ``status``, ``error`` or
``code``, or at the start.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from honcho_fallback.tools._failure import ToolBlockedError, ToolDeniedError
from honcho_fallback.tools._failure import ToolFailureKind as Kind

_READ = 4000  # characters; what comes later is the tool's output, not its complaint

# Before a port stands a colon and no word, before a line number the word "line".
_STATUS = re.compile(
    r"(?:^\W{0,3}|\b(?:http(?:[ /]\d(?:\.\d)?)?|status(?:[ _-]?code)?|error|(?<!of )code)"
    r"['\"]?[\s:=(#\[-]{0,3}['\"]?)(?<!\d)(\d{3})(?![\w.]*\d|\w)"
)
_WAITED = re.compile(r"timed out|deadline exceeded|timeout|time-out")
_NO_TIMEOUT = re.compile(
    r"(?:invalid|unknown|unexpected|unsupported|bad|missing|negative|no such)\s+"
    r"(?:[\w-]+\s+){0,2}?['\"`]?timeout"
    r"|timeout['\"`]?\s+(?:parameter|argument|value|option|setting|field|flag|must|should|has to)"
    r"|timeout['\"`]?\s+(?:is\s+)?(?:not\s+(?:a|supported|allowed)|required|invalid|unsupported)"
    r"|timeout['\"`]?\s*[=:]\s*\S"
    r"|(?:parameter|argument|option|setting|field|flag|--)\s*['\"`]?timeout"
)
_AUTONOMY = re.compile(r"autonomy\s+(?:level|mode|policy|setting|tier|is\b)|(?:by|your) autonomy")
_NOT_ALLOWED = re.compile(
    r"not allowed by (?:the |your |this )?(?:[\w-]+ )?"
    r"(?:policy|policies|settings?|safety|security|channel|configuration|sandbox|autonomy|rules?)"
)
_OLLAMA = re.compile(
    r"ollama.{0,60}?(?:connect|reach|refused|not running|unavailable|unreachable|did not answer)"
    r"|(?:connect|reach|talk|request)\w*.{0,40}?ollama"
)


class _Rule(NamedTuple):
    kind: Kind
    needles: tuple[str, ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()
    statuses: frozenset[int] = frozenset()

    def fits(self, text: str, statuses: frozenset[int]) -> bool:
        return (
            bool(self.statuses & statuses)
            or any(needle in text for needle in self.needles)
            or any(pattern.search(text) for pattern in self.patterns)
        )


CREDENTIAL_STATUSES = frozenset({401, 403})
TIMEOUT_STATUSES = frozenset({408})
SERVICE_STATUSES = frozenset({429, 500, 502, 503, 504, 529})

# In this order: a call that policy forbids also says "permission denied", a refused login also
# "could not connect".
_RULES = (
    _Rule(
        Kind.BLOCKED_BY_POLICY,
        ("blocked by policy", "security policy", "channel allows", "forbidden path"),
        (_NOT_ALLOWED, _AUTONOMY),
    ),
    _Rule(
        Kind.BAD_CREDENTIALS,
        (
            "unauthorized",
            "invalid api key",
            "invalid_api_key",
            "authentication failed",
            "invalid credentials",
            "bad credentials",
            "token expired",
            "invalid_grant",
            "not signed in",
            "sign in again",
            "forbidden",
            "insufficient authentication scopes",
            "insufficient scopes",
            "insufficient_scope",
        ),
        statuses=CREDENTIAL_STATUSES,
    ),
    _Rule(
        Kind.MISSING_PERMISSION,
        (
            "permission denied",
            "os error 13",
            "eacces",
            "operation not permitted",
            "access is denied",
            "not permitted",
        ),
    ),
    _Rule(
        Kind.MISSING_APP,
        (
            "command not found",
            "not installed",
            "no such application",
            "could not find application",
            "executable not found",
            "is not recognized as",
            "no such file or directory (os error 2)",
        ),
    ),
    _Rule(
        Kind.MODEL_CONNECTION,
        (
            "provider error",
            "could not reach the model",
            "could not reach model",
            "llm provider",
            "inference failed",
            "model endpoint",
            "no route to host",
        ),
        (_OLLAMA,),
    ),
    _Rule(
        Kind.SERVICE_UNAVAILABLE,
        (
            "connection refused",
            "econnrefused",
            "service unavailable",
            "temporarily unavailable",
            "could not connect",
            "connection reset",
            "network is unreachable",
        ),
        statuses=SERVICE_STATUSES,
    ),
)
# What passes by itself though no rule above names it.
_PASSING = (
    "temporary failure",
    "connection closed",
    "connection aborted",
    "host is unreachable",
    "host unreachable",
    "network unreachable",
    "dns error",
    "failed to lookup address",
    "failed to resolve",
    "rate limit",
    "too many requests",
    "retry after",
    "bad gateway",
    "gateway timeout",
)


def marked(text: str) -> Kind | None:
    """Read the host's own markers, which beat everything."""
    if ToolBlockedError.marker in text:
        return Kind.BLOCKED_BY_POLICY
    if ToolDeniedError.marker in text:
        expired = any(word in text for word in ("timed out", "timeout", "expired"))
        return Kind.APPROVAL_EXPIRED if expired else Kind.DENIED
    return None


def kind_of_text(text: str) -> Kind:
    """Say what a tool's text means."""
    statuses = frozenset(map(int, _STATUS.findall(text)))
    if statuses & TIMEOUT_STATUSES or _WAITED.search(_NO_TIMEOUT.sub(" ", text)):
        return Kind.TIMEOUT
    return next((rule.kind for rule in _RULES if rule.fits(text, statuses)), Kind.UNKNOWN)


def passes(text: str) -> bool:
    """Tell whether a text speaks of something that passes by itself."""
    return any(words in text for words in _PASSING)


def lowered(text: str) -> str:
    """Return what is read of a text."""
    return text[:_READ].lower()
