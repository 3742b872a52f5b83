"""The structured facts that decide: statuses, provider codes, errno. Tables, first match wins."""

from __future__ import annotations

import errno
from typing import NamedTuple

from honcho_fallback._failure import FailureKind as Kind


class StatusRow(NamedTuple):
    """Say what a status means when nothing more telling is known."""

    status: int
    kind: Kind
    reason: str


class CodeRow(NamedTuple):
    """Say what a provider's code means; it decides before the status.

    Args:
        kind: What it means.
        reason: One line for ``Failure.reason``.
        codes: Lower case.
        statuses: Only with one of these; empty: with any.
        transient: Overrides the kind's answer.
    """

    kind: Kind
    reason: str
    codes: tuple[str, ...]
    statuses: frozenset[int] = frozenset()
    transient: bool | None = None


STATUSES = {
    row.status: row
    for row in (
        StatusRow(401, Kind.AUTHENTICATION, "status 401"),
        StatusRow(402, Kind.QUOTA, "status 402"),
        StatusRow(403, Kind.PERMISSION, "status 403"),
        StatusRow(404, Kind.MODEL_UNAVAILABLE, "status 404"),
        StatusRow(407, Kind.AUTHENTICATION, "status 407, the proxy's"),
        StatusRow(408, Kind.TIMEOUT, "status 408"),
        StatusRow(409, Kind.SERVER_ERROR, "status 409, a conflict that passes"),
        StatusRow(410, Kind.MODEL_UNAVAILABLE, "status 410"),
        StatusRow(413, Kind.PAYLOAD_TOO_LARGE, "status 413"),
        StatusRow(424, Kind.SERVER_ERROR, "status 424, a dependency failed"),
        StatusRow(425, Kind.SERVER_ERROR, "status 425, too early"),
        StatusRow(429, Kind.RATE_LIMIT, "status 429"),
        StatusRow(451, Kind.PERMISSION, "status 451"),
        StatusRow(499, Kind.SERVER_ERROR, "status 499, the provider gave up on its own request"),
        StatusRow(503, Kind.OVERLOADED, "status 503"),
        StatusRow(504, Kind.TIMEOUT, "status 504"),
        StatusRow(524, Kind.TIMEOUT, "status 524, the gateway's timeout"),
        StatusRow(529, Kind.OVERLOADED, "status 529"),
        StatusRow(598, Kind.TIMEOUT, "status 598, the gateway's timeout"),
        StatusRow(599, Kind.TIMEOUT, "status 599, the gateway's timeout"),
    )
}
OTHER_4XX = StatusRow(400, Kind.INVALID_REQUEST, "status 4xx")
OTHER_5XX = StatusRow(500, Kind.SERVER_ERROR, "status 5xx")

_CODE_ROWS = (
    CodeRow(
        Kind.QUOTA,
        "a code that means no credit or no quota",
        (
            "insufficient_quota",
            "insufficient_user_quota",
            "insufficient_balance",
            "insufficient_balance_error",
            "insufficient_credits",
            "insufficient_credit",
            "insufficient_funds",
            "insufficientbalance",
            "not_enough_balance",
            "no_usable_credits",
            "balance_depleted",
            "creditserror",
            "out_of_credits",
            "billing_error",
            "billing_not_active",
            "billing_hard_limit_reached",
            "billing_limit_reached",
            "payment_required",
            "payment_required_error",
            "quota_exceeded",
            "quotaexceeded",
            "quota_exceeded_error",
            "exceeded_current_quota_error",
            "token_quota_reached",
            "user_quota_exceeded",
            "pre_consume_token_quota_failed",
            "budget_exceeded",
            "spend_limit_exceeded",
            "spending_limit_reached",
            "member_spend_cap_exceeded",
            "usage_limit_reached",
            "usage_limit_exceeded",
            "usage_not_included",
            "freeusagelimiterror",
            "daily_limit_exceeded",
            "monthly_limit_exceeded",
            "arrearage",
            "accountoverdueerror",
            "accountoverdue",
            "setlimitexceeded",
            "quotaexceeded.afpquotaexceeded",
            "servicequotaexceededexception",
            "allocationquota.freetieronly",
            "throttling.allocationquota",
            "commoditynotpurchased",
            "prepaidbilloverdue",
            "postpaidbilloverdue",
            "billing_disabled",
            "user_balance_insufficient",
        ),
    ),
    CodeRow(
        Kind.CONTEXT_OVERFLOW,
        "a code that means the input is longer than the window",
        (
            "context_length_exceeded",
            "context_window_exceeded",
            "exceed_context_size_error",
            "contextwindowexceedederror",
            "model_context_window_exceeded",
            "max_tokens_exceeded",
            "string_above_max_length",
            "too_many_tokens",
            "too_many_prompt_tokens",
            "prompt_too_long",
            "input_too_long",
            "request_too_long",
        ),
    ),
    CodeRow(
        Kind.CONTENT_POLICY,
        "a code that means the content was refused",
        (
            "content_filter",
            "content_filter_error",
            "content_filtered",
            "contentfilter",
            "content_policy_violation",
            "contentpolicyviolationerror",
            "content_moderation_failed",
            "content_blocked",
            "responsibleaipolicyviolation",
            "moderation_blocked",
            "invalid_prompt",
            "safety_violation",
            "sensitive_words_detected",
            "new_sensitive",
            "data_inspection_failed",
            "datainspectionfailed",
            "sensitivecontentdetected",
            "inputtextsensitivecontentdetected",
            "inputimagesensitivecontentdetected",
            "outputtextsensitivecontentdetected",
            "prompt_blocked",
            "1301",
            "content_safety",
            "image_content_policy_violation",
            "cyber_policy_violation",
        ),
    ),
    CodeRow(
        Kind.OVERLOADED,
        "a code that means too much work at the moment",
        (
            "overloaded_error",
            "overloaded",
            "server_overloaded",
            "serveroverloaded",
            "server_is_overloaded",
            "engine_overloaded",
            "engine_overloaded_error",
            "model_overloaded",
            "modelserving_overloaded",
            "slow_down",
            "over_capacity",
            "capacity_exceeded",
            "no_capacity",
            "nocapacity",
            "no_instances_available",
            "system_busy",
            "serviceunavailableexception",
            "service_unavailable",
            "model_busy",
            "1305",
            "1312",
            "50508",
        ),
    ),
    CodeRow(
        Kind.AUTHENTICATION,
        "a code that means the credentials were not accepted",
        (
            "invalid_api_key",
            "invalidapikey",
            "api_key_invalid",
            "incorrect_api_key",
            "api_key_expired",
            "apikeyexpired",
            "api_key_disabled",
            "consumer_suspended",
            "invalid_access_token",
            "token_invalidated",
            "token_expired",
            "token_revoked",
            "invalid_grant",
            "access_token_expired",
            "access_token_type_unsupported",
            "account_deactivated",
            "expiredtoken",
            "expiredtokenexception",
            "unrecognizedclientexception",
            "invalidsignatureexception",
            "incompletesignatureexception",
            "missingauthenticationtokenexception",
            "invalidclienttokenid",
            "signaturedoesnotmatch",
            "service_account_invalid",
            "no_api_key",
        ),
    ),
    CodeRow(
        Kind.PERMISSION,
        "a code that means the account may not use this",
        (
            "unsupported_country_region_territory",
            "unsupported_region",
            "location_not_supported",
            "accessdeniedexception",
            "access_denied",
            "accessdenied.unpurchased",
            "model.accessdenied",
            "app.accessdenied",
            "workspace.accessdenied",
            "operationdenied",
            "service_disabled",
            "api_key_service_blocked",
            "api_key_http_referrer_blocked",
            "api_key_ip_address_blocked",
            "ip_not_allowed",
            "ip_not_authorized",
            "request_forbidden",
            "permission_denied",
            "permission_error",
            "iam_permission_denied",
            "model_terms_required",
            "1220",
            "1311",
        ),
        frozenset({400, 404, 429}),
    ),
    CodeRow(
        Kind.MODEL_UNAVAILABLE,
        "a code that means the model is not offered",
        (
            "model_not_found",
            "modelnotfound",
            "model_not_found_error",
            "model_not_available",
            "model_not_supported",
            "model_not_exist",
            "model_not_exists",
            "model_not_loaded",
            "model_load_failed",
            "model_deprecated",
            "model_retired",
            "model_decommissioned",
            "model_unavailable",
            "model_not_deployed",
            "invalid_model",
            "invalid_model_error",
            "unknown_model",
            "unsupported_model",
            "deploymentnotfound",
            "deployment_not_found",
            "modelnotopen",
            "modelnotready",
            "modelnotreadyexception",
            "invalidendpoint.notfound",
            "invalidendpointormodel.notfound",
            "invalidendpointormodel.modelidaccessdisabled",
            "invalidendpoint.closedendpoint",
            "modelloadingerror",
            "no_available_channel",
            "unsupportedmodel",
            "endpoint_not_found",
            "1211",
            "1221",
            "1222",
        ),
    ),
    CodeRow(
        Kind.MALFORMED_RESPONSE,
        "a code that means the model wrote what nobody can use",
        (
            "tool_use_failed",
            "json_validate_failed",
            "bad_response_body",
            "empty_response",
            "invalid_response_error",
            "model_output_invalid",
        ),
    ),
    CodeRow(
        Kind.TIMEOUT,
        "a code that means it took too long",
        (
            "modeltimeoutexception",
            "timeout",
            "timeout_error",
            "request_timeout",
            "requesttimeout",
            "requesttimedout",
            "gateway_timeout",
            "upstream_timeout",
            "deadline_exceeded",
            "stream_timeout",
            "50501",
        ),
    ),
    CodeRow(
        Kind.CONNECTION,
        "a code that means the gateway lost the provider",
        (
            "do_request_failed",
            "connection_error",
            "econnrefused",
            "econnreset",
            "etimedout",
            "enotfound",
        ),
    ),
    CodeRow(
        Kind.SERVER_ERROR,
        "a code that means the provider failed",
        (
            "internalserverexception",
            "modelerrorexception",
            "modelstreamerrorexception",
            "conflictexception",
            "internalfailure",
        ),
    ),
    # Zhipu's and MiniMax's numbers, where the status says less.
    CodeRow(
        Kind.QUOTA,
        "a provider's number that means no balance or a used-up plan",
        ("1112", "1113", "1304", "1308", "1309", "1310", "1313", "1316", "1317", "30001", "30011"),
    ),
    CodeRow(
        Kind.QUOTA,
        "a provider's number that means no balance",
        ("1008", "4006", "17", "19", "2056"),
        frozenset({200, 400, 429, 500}),
    ),
    CodeRow(
        Kind.RATE_LIMIT,
        "a provider's number that means too many requests",
        ("1302", "1303", "18", "336501", "336502", "1039", "1041"),
        frozenset({200, 400, 429, 500}),
    ),
    CodeRow(
        Kind.RATE_LIMIT,
        "a provider's number that means too many requests",
        ("1002",),
        frozenset({200, 429}),
    ),
    CodeRow(
        Kind.AUTHENTICATION,
        "a provider's number for a bad key",
        ("1004", "2049"),
        frozenset({200, 400, 401}),
    ),
    CodeRow(
        Kind.CONTENT_POLICY,
        "a provider's number that means refused content",
        ("1026", "1027", "336104"),
        frozenset({200, 400}),
    ),
    CodeRow(Kind.PERMISSION, "a provider's number for terms not agreed to", ("5016",)),
)


def _by_code(rows: tuple[CodeRow, ...]) -> dict[str, CodeRow]:
    table: dict[str, CodeRow] = {}
    for row in rows:
        for code in row.codes:
            table.setdefault(code, row)
    return table


CODES = _by_code(_CODE_ROWS)

# Codes that only name a class of statuses: they count where there is no error status.
GENERIC = {
    "invalid_request_error": 400,
    "invalid_request": 400,
    "invalid_argument": 400,
    "failed_precondition": 400,
    "out_of_range": 400,
    "badrequesterror": 400,
    "bad_request": 400,
    "bad_request_error": 400,
    "validationexception": 400,
    "validation_error": 400,
    "invalid_value": 400,
    "authentication_error": 401,
    "authenticationerror": 401,
    "unauthenticated": 401,
    "unauthorized": 401,
    "permission_error": 403,
    "permission_denied": 403,
    "permissiondeniederror": 403,
    "accessdeniedexception": 403,
    "forbidden": 403,
    "not_found": 404,
    "not_found_error": 404,
    "notfounderror": 404,
    "resourcenotfoundexception": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "rate_limit_reached_error": 429,
    "rate_limited": 429,
    "ratelimiterror": 429,
    "ratelimitreached": 429,
    "too_many_requests": 429,
    "resource_exhausted": 429,
    "throttlingexception": 429,
    "throttling": 429,
    "toomanyrequestsexception": 429,
    "requests": 429,
    "tokens": 429,
    "server_error": 500,
    "api_error": 500,
    "internal": 500,
    "internal_error": 500,
    "internal_server_error": 500,
    "internalservererror": 500,
    "upstream_error": 500,
    "provider_error": 502,
    "unknown": 500,
    "aborted": 409,
    "data_loss": 500,
    "unavailable": 503,
    "provider_unavailable": 502,
    "serviceunavailableerror": 503,
}

_NETWORK = (
    "ECONNREFUSED",
    "ECONNRESET",
    "ECONNABORTED",
    "EPIPE",
    "ENETDOWN",
    "ENETUNREACH",
    "ENETRESET",
    "EHOSTDOWN",
    "EHOSTUNREACH",
    "ENOTCONN",
    "ESHUTDOWN",
    "EADDRNOTAVAIL",
)
NETWORK_ERRNO = frozenset(getattr(errno, name) for name in _NETWORK if hasattr(errno, name))
TIMEOUT_ERRNO = frozenset({errno.ETIMEDOUT})

# A window of this many seconds is a used-up quota, not a rate that passes.
LONG_WAIT = 3600.0
