"""What a tool's text means: openhuman's rules in their order, first hit wins.

Its words that also occur in ordinary text count here only with the company they keep in errors.
A number counts as a status only where one is written (after ``http``, ``status`` or ``code``), or
where somebody answers with it and nothing is counted by it: "upstream returned 503" is one, "503
rows were returned" is none. What a command printed before it exited is the command's own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from honcho_fallback.tools._failure import ToolBlockedError, ToolDeniedError
from honcho_fallback.tools._failure import ToolFailureKind as Kind

# Characters; what comes between is the tool's output, not its complaint. A command's exit code
# stands at either end.
_READ, _TAIL = 4000, 200
_COMMAND_NOT_FOUND = 127  # POSIX shells
_EXIT_CODES = range(1, 256)

_MAY_HOLD_STATUS = re.compile(r"(?<!\d)[45]\d\d(?!\d)")
# Before a port stands a colon and no word, before a line number the word "line".
_WRITTEN_STATUS = re.compile(
    r"\b(?:http(?:[ /]\d(?:\.\d)?)?|status(?:[ _-]?code)?|(?<!of )code)"
    r"['\"]?[\s:=(#\[-]{0,3}['\"]?(?<!\d)(\d{3})(?![\w.]*\d|\w)"
)
_ANSWERED_STATUS = re.compile(
    r"(?:^\W{0,3}"
    r"|\b(?:http|api|server|client)?error['\"]?[\s:=(#\[-]{0,3}['\"]?"
    r"|\b(?:server|upstream|backend|api|gateway|proxy|endpoint|webhook|provider|response)"
    r"(?::?\s['\"(\[]?|\()"
    r"|\b(?:answer(?:s|ed|ing)?|repl(?:y|ies|ied|ying)|respond(?:s|ed|ing)?|return(?:s|ed|ing)?"
    r"|g[eo]t(?:s|ting)?|gives?|gave|giving|receive[sd]?|receiving|sends?|sent|hits?|thr[eo]ws?"
    r"|sa(?:ys|id)|report(?:s|ed)?|fail(?:s|ed|ing)? with|c[ao]mes? back)"
    r"(?:\s{1,3}(?:with|back|an?|the|another|only|just|us|me|http|error|response)){0,4}\W{1,3})"
    r"(?<![\d$€£])(\d{3})(?![\w%]|[.,:/-]\d)"
    # What is counted by a number follows it at once; what follows a status is one of these.
    r"(?=[^\S\n]{0,3}(?:$|\n|[^\w\s%°€$£]|(?:from|for|on|when|while|after|at|by|but|and|because|again"
    r"|twice|instead|error|status|response|code|unauthori[sz]ed|forbidden|bad|internal|service"
    r"|gateway|too|request|timeout|not|payment|proxy|server|upstream|overloaded|site|client|http"
    r"|as|so|with|unexpected|temporarily|unavailable|slow|rate|try|please|back|invalid|missing"
    r"|insufficient)\b))"
)
_EXPECTED_STATUS = re.compile(
    r"\b(?:expect(?:s|ed|ing)?|want(?:s|ed)?|instead of|rather than"
    r"|should(?: have)? (?:be|been|get|give|return)(?:ed)?)\W{1,3}"
    r"(?:(?:an?|the|to|be|get|return|see|http|status|code|response|error|of|was|is)\W{1,3}){0,4}"
    r"[1-5]\d\d(?!\d)"
)
_EXITED = re.compile(
    r"\b(?:exit(?:ed)?(?:[ _-]?(?:with|code|status|value|an?|non-?zero)){1,5}|exited"
    r"|return[ _-]?code|rc)['\"]?[\s:=(]{1,3}(-?\d{1,3})(?![\w.]*\d|\w)"
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
_A_PERSON = r"(?:the |a |an )?(?:user|human|person|operator|reviewer|approver)"
_DECLINED = re.compile(
    rf"\b(?:(?:rejected|declined|denied|refused) by {_A_PERSON}"
    rf"|{_A_PERSON} (?:has )?(?:rejected|declined|denied|refused))\b"
)


class _Rule(NamedTuple):
    kind: Kind
    needles: tuple[str, ...] = ()
    patterns: tuple[tuple[str, re.Pattern[str]], ...] = ()  # each with a word that it needs
    statuses: frozenset[int] = frozenset()

    def fits(self, text: str, statuses: frozenset[int]) -> bool:
        for needle in self.needles:  # a loop: this is done for every failure
            if needle in text:
                return True
        return not self.statuses.isdisjoint(statuses) or any(
            word in text and pattern.search(text) for word, pattern in self.patterns
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
        (("not allowed by", _NOT_ALLOWED), ("autonomy", _AUTONOMY)),
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
        (("ollama", _OLLAMA),),
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
        ),
        statuses=SERVICE_STATUSES,
    ),
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
    code = exit_code_of(text)
    if code is not None:
        return kind_of_exit(code)
    if _DECLINED.search(text):
        return Kind.DENIED
    statuses = _statuses(text) if _MAY_HOLD_STATUS.search(text) else frozenset[int]()
    if statuses & TIMEOUT_STATUSES or (
        _WAITED.search(text) and _WAITED.search(_NO_TIMEOUT.sub(" ", text))
    ):
        return Kind.TIMEOUT
    for rule in _RULES:
        if rule.fits(text, statuses):
            return rule.kind
    return Kind.UNKNOWN


def kind_of_exit(code: int) -> Kind:
    """Say what the exit code of a command means; what it printed is its own business."""
    return Kind.MISSING_APP if code == _COMMAND_NOT_FOUND else Kind.UNKNOWN


def exit_code_of(text: str) -> int | None:
    """Return the exit code that a text states of a command that failed, or None."""
    if "exit" not in text and "code" not in text and "rc" not in text:
        return None
    codes = map(int, _EXITED.findall(text))
    return next((code for code in codes if code < 0 or code in _EXIT_CODES), None)


def lowered(text: str) -> str:
    """Return what is read of a text."""
    if len(text) > _READ:
        text = f"{text[: _READ - _TAIL]}\n{text[-_TAIL:]}"
    return text.lower()


def _statuses(text: str) -> frozenset[int]:
    text = _EXPECTED_STATUS.sub(" ", text)
    numbers = (*_WRITTEN_STATUS.findall(text), *_ANSWERED_STATUS.findall(text))
    return frozenset(map(int, numbers))
