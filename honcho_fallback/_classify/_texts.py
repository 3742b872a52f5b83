"""Text patterns: read only where no code decides. A row names the statuses it may refine."""

from __future__ import annotations

import re
from typing import NamedTuple

from honcho_fallback._failure import FailureKind as Kind


class TextRow(NamedTuple):
    """Say what a message means.

    Args:
        kind: What it means.
        reason: One line for ``Failure.reason``.
        statuses: The statuses it refines; 0 stands for no status at all.
        needles: Any of these, lower case.
        also: And, where given, any of these.
        unless: And none of these.
        transient: Overrides the kind's answer.
    """

    kind: Kind
    reason: str
    statuses: frozenset[int]
    needles: tuple[str, ...]
    also: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    transient: bool | None = None

    def refuses(self, text: str) -> bool:
        """Say whether a message that has one of the needles still does not fit.

        Args:
            text: Lower case.
        """
        return (bool(self.also) and not any(word in text for word in self.also)) or any(
            word in text for word in self.unless
        )


_BAD = frozenset({400, 404, 422})
_4XX = frozenset({400, 401, 403, 404, 422})
_5XX = frozenset({500, 502, 503})
_NONE = frozenset({0})
_LIMIT = frozenset({429})

ROWS = (
    # A request that is too big for the limit itself never gets through, however long one waits.
    TextRow(
        Kind.PAYLOAD_TOO_LARGE,
        "the message says one request is over the limit",
        _LIMIT,
        ("request too large", "tokens must be reduced", "reduce your message size"),
    ),
    TextRow(
        Kind.OVERLOADED,
        "the message says there is too much work",
        _LIMIT | _5XX | _NONE,
        (
            "overloaded",
            "out of capacity",
            "at capacity",
            "over capacity",
            "high demand",
            "too busy",
            "no deployments available",
            "capacity exceeded",
            "负载已饱和",
            "负载过高",
            "服务繁忙",
            "系统繁忙",
        ),
        unless=("rate limit reached", "context", "likely overload", "升级", "load llm"),
    ),
    TextRow(
        Kind.QUOTA,
        "the message says there is no credit",
        _4XX | _LIMIT | _5XX | _NONE,
        (
            "insufficient balance",
            "insufficient credit",
            "insufficient fund",
            "insufficient quota",
            "not enough balance",
            "not enough credit",
            "balance is insufficient",
            "balance is too low",
            "credit balance",
            "out of credit",
            "run out of credit",
            "no credit",
            "any credits",
            "available credits",
            "more credits",
            "requires payment",
            "payment required",
            "billing hard limit",
            "spending limit",
            "spending cap",
            "spend limit",
            "budget has been exceeded",
            "budget exceeded",
            "exceeded budget",
            "exceeded your budget",
            "purchase credits",
            "余额不足",
            "额度不足",
            "额度已用",
            "欠费",
            "余额已",
        ),
        unless=("thinking budget",),
    ),
    TextRow(
        Kind.QUOTA,
        "the message says an allowance is used up",
        _4XX | _LIMIT | _5XX,
        (
            "usage limit",
            "key limit exceeded",
            "limit for this billing",
            "billing cycle",
            "daily limit",
            "weekly limit",
            "monthly limit",
            "hourly limit",
            "session limit",
            "daily request limit",
            "weekly rate limit",
            "monthly rate limit",
            "daily token limit",
            "trial key",
            "free allocation",
            "free tier of the model has been exhausted",
            "free quota",
            "per-day",
            "per day (rpd)",
            "requests per day",
            "you have no quota",
            "quota is exhausted",
            "current quota, please check",
            "exceeded your account's rate limit",
            "exceed your account's rate limit",
        ),
        unless=("tokens per day (tpd)", "token-limit"),
    ),
    TextRow(
        Kind.CONTEXT_OVERFLOW,
        "the message says the input is longer than the window",
        _BAD | _5XX | frozenset({413, 0}),
        (
            "context length",
            "context window",
            "context size",
            "context_length",
            "context limit",
            "prompt is too long",
            "prompt too long",
            "input is too long",
            "too many tokens",
            "input tokens exceed",
            "input token count",
            "number of input tokens",
            "maximum number of tokens allowed",
            "exceeds the model's maximum",
            "max length",
            "reduce the length of the",
            "exceeds the maximum length",
            "exceeds maximum length",
            "上下文长度",
            "超过最大长度",
            "超出最大",
        ),
        unless=("tokens per minute", "is not supported", "too many tokens, please wait"),
    ),
    TextRow(
        Kind.CONTENT_POLICY,
        "the message says the content was refused",
        frozenset({400, 403, 422, 500, 0}),
        (
            "content policy",
            "content filter",
            "content management policy",
            "content_filter",
            "content filtering",
            "usage policy",
            "usage policies",
            "usage guidelines",
            "safety system",
            "safety polic",
            "flagged",
            "responsible ai",
            "inappropriate content",
            "content exists risk",
            "sensitive content",
            "prohibited content",
            "violates our",
            "violate our",
            "敏感",
            "违规",
            "不安全",
        ),
        unless=("resource has been", "not supported", "unsupported"),
    ),
    TextRow(
        Kind.AUTHENTICATION,
        "the message says the credentials were not accepted",
        _4XX | _5XX,
        (
            "api key not valid",
            "invalid api key",
            "incorrect api key",
            "api key expired",
            "api key is invalid",
            "api key not found",
            "invalid x-api-key",
            "_api_key is not set",
            "api key format",
            "security token",
            "has been suspended",
            "invalid token",
            "token has expired",
            "token is expired",
            "expired token",
            "invalid authentication",
            "authentication failed",
            "invalid credentials",
            "no auth credentials",
            "api key is missing",
            "missing api key",
            "无效的令牌",
            "令牌",
            "密钥",
        ),
        unless=("permissions to call",),
    ),
    TextRow(
        Kind.AUTHENTICATION,
        "the message says no credentials were given",
        _NONE,
        (
            "api_key client option must be set",
            "could not resolve authentication method",
            "no api key",
            "api key was provided",
            "api key not valid",
            "invalid api key",
            "incorrect api key",
            "api key must be",
            "api_key must be",
            "missing credentials",
            "unable to locate credentials",
            "did you forget to set",
            "missing key inputs",
            "default credentials were not found",
        ),
    ),
    TextRow(
        Kind.MALFORMED_RESPONSE,
        "the message says the model's output could not be used",
        frozenset({400, 500, 502, 0}),
        (
            "failed to parse tool call",
            "tool call validation failed",
            "model did not call a tool",
            "failed to generate json",
            "empty or invalid response",
            "model output is invalid",
            "failed to validate json",
        ),
    ),
    TextRow(
        Kind.PERMISSION,
        "the message says the account may not use this",
        _BAD,
        (
            "location is not supported",
            "not available in your region",
            "region is not supported",
            "country, region",
            "is not allowed for this account",
            "operation not allowed",
            "do not have permission",
            "does not have permission",
            "not authorized to",
            "you don't have access",
            "data policy",
            "terms of service",
            "must agree to",
            "has not agreed",
        ),
        unless=("does not exist", "not found"),
    ),
    TextRow(
        Kind.MODEL_UNAVAILABLE,
        "the message says the model is loading",
        frozenset({500, 503, 400, 404, 409, 424}),
        (
            "currently loading",
            "is loading",
            "loading model",
            "no instances available",
            "model is not ready",
            "warming up",
            "cold start",
        ),
        transient=True,
    ),
    TextRow(
        Kind.INVALID_REQUEST,
        "the message says the model cannot be asked this way",
        frozenset({404}),
        ("is a chat model", "not a chat model", "use v1/", "did you mean to use"),
    ),
    TextRow(
        Kind.MODEL_UNAVAILABLE,
        "the message says the model is not offered",
        frozenset({400, 403, 422, 500, 503, 0}),
        (
            "invalid model",
            "model identifier is invalid",
            "model not found",
            "unknown model",
            "unsupported model",
            "model not exist",
            "no model named",
            "no models loaded",
            "error loading model",
            "failed to load",
            "no such model",
            "non-serverless model",
            "on-demand throughput isn",
            "model is not available",
            "model does not exist",
            "does not support endpoint",
            "no longer available",
            "has been deprecated",
            "has been decommissioned",
            "has been retired",
            "无可用渠道",
            "模型不存在",
            "不支持的模型",
            "no available channel",
        ),
        unless=("failed to load image", "failed to load the image", "failed to load file"),
    ),
    TextRow(
        Kind.MODEL_UNAVAILABLE,
        "the message says this model is not there",
        _BAD,
        ("model ",),
        (
            "does not exist",
            "not found",
            "is not supported. supported models",
            "was removed",
            "is not available",
            "not available for",
            "is not recognised",
            "is not recognized",
            "has reached its end of life",
            "is unavailable",
            "not deployed",
        ),
        unless=("parameter", "tool_call", "field", "response_format"),
    ),
    TextRow(
        Kind.PAYLOAD_TOO_LARGE,
        "the message says the request is too large",
        _BAD,
        (
            "payload too large",
            "request too large",
            "request body too large",
            "request entity too large",
            "use fewer than",
            "request payload size exceeds",
            "image exceeds",
            "file is too large",
            "exceeds the maximum size",
            "too many images",
        ),
    ),
    TextRow(
        Kind.RATE_LIMIT,
        "the message says too many requests",
        frozenset({400, 403, 500, 502, 503}),
        (
            "rate limit",
            "rate-limit",
            "too many requests",
            "requests per minute",
            "throttled",
            "tokens per minute",
            "限流",
            "频率",
        ),
    ),
    TextRow(
        Kind.TIMEOUT,
        "the message says it took too long",
        frozenset({500, 502, 503, 0, 400, 408}),
        (
            "timed out",
            "_timeout",
            "timeout waiting",
            "request timeout",
            "deadline exceeded",
            "gateway time-out",
            "超时",
            "readtimeout",
            "connection timeout",
        ),
        unless=("invalid", "parameter", "unsupported"),
    ),
    TextRow(
        Kind.CONNECTION,
        "the message says the gateway lost the provider",
        frozenset({400, 408, 500, 502, 503, 0}),
        (
            "connection refused",
            "connection reset",
            "connection error",
            "connection closed",
            "stream disconnected",
            "stream closed before",
            "networking error",
            "do request failed",
            "name or service not known",
            "temporary failure in name resolution",
            "no route to host",
            "peer closed connection",
            "server disconnected",
            "bad status line",
            "incomplete chunked read",
            "socket hang up",
            "fetch failed",
            "econnreset",
            "econnrefused",
            "network is unreachable",
        ),
        unless=("reset reason: overflow",),
    ),
    TextRow(
        Kind.SERVER_ERROR,
        "the message says the provider failed",
        _NONE,
        ("internalserverexception", "internal server error", "bad gateway", "server had an error"),
    ),
    TextRow(
        Kind.SERVER_ERROR,
        "the message says another provider behind the gateway failed",
        frozenset({400}),
        ("upstream", "provider returned error"),
        ("failed", "unavailable", "provider returned error"),
        unless=("upstream status code", "invalid"),
    ),
)

# Split by status once, each needle with its rows in order: a filter over plain strings is what
# keeps a search cheap.
NEEDLES: dict[int, dict[str, tuple[TextRow, ...]]] = {
    status: {
        needle: tuple(r for r in ROWS if status in r.statuses and needle in r.needles)
        for row in ROWS
        if status in row.statuses
        for needle in row.needles
    }
    for status in sorted({status for row in ROWS for status in row.statuses})
}


def match(text: str, status: int) -> TextRow | None:
    """Find the first row that a message fits, or None.

    Args:
        text: Lower case.
        status: The status it may refine; 0 for none.
    """
    table = NEEDLES.get(status)
    if table is None:
        return None
    for needle in filter(text.__contains__, table):
        for row in table[needle]:
            if not row.refuses(text):
                return row
    return None


# A status written into a message by a wrapper that keeps no number.
STATED = re.compile(
    r"(?:error code|status code|status_code|http status|status|http|code)"
    r"['\"]?\s*[:=]?\s*[\"']?(?<!\d)([45]\d\d)(?![\d.])"
    r"|^\W{0,2}([45]\d\d)(?!\d)[ :,]"
    r"|\berror[ :(]{1,3}([45]\d\d)\b(?!\.)"
)
# The codes of an error document that a wrapper made part of its text.
QUOTED = re.compile(
    r"\\*[\"'](?:code|type|status|reason|__type)\\*[\"']\s*:\s*"
    r"\\*[\"']?([\w.\- ]{3,60}?)\\*[\"',}]"
)
