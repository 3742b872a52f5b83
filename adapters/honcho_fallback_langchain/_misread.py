"""Answers that a provider's package could not read: the provider's failure, not the program's.

Where ``choices`` are empty or null, LangChain and its integrations raise whatever an index or a
loop happens to raise, and a stream without events is a bare ValueError. Where it was raised tells
them from a mistake of the program, of a tool, a parser or a callback.
"""

from __future__ import annotations

import re
from typing import Final

from honcho_fallback import AnswerRejected, Failure, FailureKind

MISREAD: Final = (AttributeError, LookupError, TypeError, ValueError)

# Methods of a chat model from which a request is written, sent, and its answer read.
_VERB: Final = re.compile("_a?(generate|stream)(_responses)?")
# What they call to read one, in every integration: _create_chat_result, _format_output and so on.
_READS: Final = re.compile("chunk|output|response|result")
# Where LangChain itself looks for the first of no answers.
_MODELS: Final = "langchain_core.language_models."
_FIRST_OF_NONE: Final = re.compile("a?(invoke|stream|generate_from_stream)")


def check_misread(error: Exception) -> None:
    """Raise what an error stands for, if it was raised while an answer was read."""
    if _is_misread(_frames(error)):
        raise unreadable(f"the answer could not be read ({type(error).__name__})") from error


def unreadable(why: str) -> AnswerRejected:
    """Return what stands for an answer that is none."""
    return AnswerRejected(Failure.of(FailureKind.MALFORMED_RESPONSE, reason=why))


def _is_misread(frames: list[tuple[str, str]]) -> bool:
    module, name = frames[-1] if frames else ("", "")
    if module.startswith(_MODELS) and _FIRST_OF_NONE.fullmatch(name):
        return True
    if not _is_integration(module):
        return False
    verbs = [place for place, (_, name) in enumerate(frames) if _VERB.fullmatch(name)]
    called = frames[verbs[-1] + 1 :] if verbs else []
    # In a task it is called in a thread, through LangChain's and Python's own functions.
    first = next((name for module, name in called if _is_integration(module)), "")
    return _READS.search(first) is not None


def _is_integration(module: str) -> bool:
    return module.startswith("langchain_") and not module.startswith("langchain_core.")


def _frames(error: Exception) -> list[tuple[str, str]]:
    frames: list[tuple[str, str]] = []
    traceback = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        frames.append((str(frame.f_globals.get("__name__")), frame.f_code.co_name))
        traceback = traceback.tb_next
    return frames
