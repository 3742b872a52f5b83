"""What an exception out of LiteLLM means: the provider's own error decides, not LiteLLM's mapping.

LiteLLM's mapping turns Anthropic's 529 into 500, a 400 that mentions a rate limit into 429, a
lost connection into 500, and a bug of the program into 500 as well. The truth hangs below.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from litellm.exceptions import RateLimitError
from litellm.types.router import RouterRateLimitError, RouterRateLimitErrorBasic

from honcho_fallback import AnswerRejected, Failure, FailureKind, check_response, classify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from honcho_fallback import FallbackConfig

_DEPTH = 8
# LiteLLM's names for "something went wrong and I do not know what".
_CATCH_ALLS = frozenset({"APIConnectionError", "APIError", "InternalServerError"})
_OUR_TROUBLE = frozenset({FailureKind.LOCAL, FailureKind.MALFORMED_RESPONSE})
# The status that LiteLLM gives to an error under HTTP 200, and to an answer that it cannot read.
_MADE_UP = 422
# The next deployment may have room, and no provider is at fault.
_NO_ROOM = Failure.of(
    FailureKind.RATE_LIMIT,
    transient=False,
    reason="LiteLLM had no room at this deployment",
    scope="client",
    reached="no",
)


def classifier_for(config: FallbackConfig) -> Callable[[BaseException], Failure]:
    """Return a classifier that looks below LiteLLM's exceptions; rules see these as well."""
    built_in = partial(classify, rules=config.rules, only_models=True)
    return partial(_classify, built_in, has_rules=bool(config.rules))


def provider_error(error: Exception) -> Exception:
    """Return the exception that LiteLLM made an error from: a stream's original, or itself.

    Where LiteLLM's own bookkeeping trips over a provider's error (a status that is a text makes
    its cooldown raise a TypeError), it is the one that it tripped over.
    """
    originals: list[Any] = [getattr(error, "original_exception", None)]
    if type(error).__module__ == "builtins":
        originals += (one for one in _below(error) if type(one).__module__ == "litellm.exceptions")
    return next((one for one in originals if isinstance(one, Exception)), error)


def is_refusal(error: BaseException) -> bool:
    """Tell whether LiteLLM itself said no, for a limit or a cooldown, and asked nobody."""
    if getattr(error, "failed_deployment_id", None) is not None:
        return False
    if isinstance(error, RateLimitError):
        return not error.llm_provider
    return isinstance(error, RouterRateLimitError | RouterRateLimitErrorBasic)


def _restore_context(error: BaseException) -> None:
    """Note again what an error of a sync method was raised for.

    LiteLLM runs those inside ``except RuntimeError`` ("no running event loop"), which Python then
    notes as the context of whatever goes wrong in there. The frame in which LiteLLM mapped the
    provider's error still has that one.
    """
    for one in chain([error], _below(error)):  # what is restored is looked below in its turn
        context = one.__context__
        if type(context) is RuntimeError and context.args == ("no running event loop",):
            one.__context__ = _mapped_from(one)


def _mapped_from(error: BaseException) -> BaseException | None:
    for frame, _ in walk_tb(error.__traceback__):
        if "original_exception" not in frame.f_code.co_varnames:
            continue  # up to Python 3.12 a look at the locals of a frame keeps them: not at ours
        original = frame.f_locals.get("original_exception")
        if isinstance(original, BaseException) and original is not error:
            return original
    return None


def _classify(
    inner: Callable[[BaseException], Failure], error: BaseException, *, has_rules: bool
) -> Failure:
    _restore_context(error)
    if has_rules and (ruled := inner(error)).by_rule:
        return ruled
    if is_refusal(error):
        return _NO_ROOM._replace(error=type(error).__name__)
    if isinstance(error, Exception):
        error = provider_error(error)
        _restore_context(error)
    is_theirs = type(error).__module__.startswith(("litellm.", "openai."))
    native = _native(error) if is_theirs else None
    if native is None:
        return inner(error)
    failure, name = inner(native), type(error).__name__
    is_ours = failure.kind in _OUR_TROUBLE and not (name in _CATCH_ALLS or failure.by_rule)
    is_made_up = getattr(error, "status_code", None) == _MADE_UP
    if (is_ours and not is_made_up) or failure.kind is FailureKind.CANCELLED:
        return inner(error)  # what happened while LiteLLM read the error is not the error
    waits = failure.retry_after
    if waits is None and getattr(native, "response", None) is None:
        waits = inner(error).retry_after  # some of LiteLLM's handlers keep the headers there
    return failure._replace(error=name, retry_after=waits)


def _native(error: BaseException) -> BaseException | None:
    """Find what a provider's SDK or the transport raised, below LiteLLM's own classes."""
    handler: BaseException | None = None
    bare: BaseException | None = None  # LiteLLM's handlers raise plain ones, too
    for below in _below(error):
        module, name = type(below).__module__, type(below).__name__
        is_own = module.startswith("litellm.") and name != "MaskedHTTPStatusError"
        is_litellms = is_own or type(below) is Exception
        says_nothing = not str(below) and getattr(below, "status_code", None) is None
        if module.startswith("litellm.exceptions") or (says_nothing and is_litellms):
            continue
        if type(below) is Exception:
            bare = bare or below
        elif is_litellms:
            handler = below
        elif handler is not None and name == "HTTPStatusError":
            return handler  # LiteLLM's own client: the handler's error has the body as well
        else:
            return below
    own = bare or handler
    if getattr(own, "status_code", None) != _MADE_UP:
        return own
    failure = check_response({"error": {"message": getattr(own, "message", "")}})
    return own if failure is None else AnswerRejected(failure)


def _below(error: BaseException) -> Iterator[BaseException]:
    seen, below = {id(error)}, error
    for _ in range(_DEPTH):
        following = below.__cause__ or (None if below.__suppress_context__ else below.__context__)
        if following is None or id(following) in seen:
            return
        below = following
        seen.add(id(below))
        yield below
