"""What may be shown: texts without keys, addresses without logins, and which names are secrets'.

The whole package has one answer: what a provider wrote, log lines, records and traces go through
here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote

_CAP = 200
_READ = 400  # more than is shown, so that a secret at the cut is still recognised
_LONG = 12  # no real secret is shorter than this
_CERTAIN = 20  # without a dash, only what is as long as this
_MARK = "[redacted]"

# In lower case. "key" and "token" end a name: a monkey is none, and a token_count is a number.
_SECRET_NAME = re.compile(
    r"(?:^|[-_.])(?:api|access|auth|private|secret|signing|subscription)?[-_]?keys?$|apikey"
    r"|tokens?$|secret|passw|passphrase|pwd|credential|authorization|bearer|cookie|jwt|hmac"
    r"|signature|(?:^|[-_.])(?:auth|pass|sas|sig)$"
)
# Who logs in stands between the slashes and the last @ before the path, wherever a password has
# another; a parameter is known by its name, in an address and in a connection string.
_LOGIN = re.compile(r"(?<=[:/]/)[^\s/?#]*@")  # a path object keeps one slash of two
_PARAMETER = re.compile(r"(?<![\w%.-])([\w%.-]+)=([^\s&;#\"'<>]+)")
# In prose only what is written as a key is one: "the key: messages" is about a dictionary.
_IN_PROSE = re.compile(
    r"(?i)(\b(?:bearer|basic)\s+|"
    r"\b(?:api[-_ ]?key|x-api-key|access[-_]token|client[-_]secret|secret|password|token)\b"
    r"(?:\s+provided)?[\"']?\s*[:=]\s*[\"']?)[^\s\"'&,;)]+"
)
# Looked for before a text is searched: most hold none of these.
_HINTS = (
    "bearer ", "basic ", "key=", "key:", "key'", 'key"', "key =", "key :", "provided:", "token=",
    "token:", "token'", 'token"', "secret", "password",
)  # fmt: skip
_ISSUED = "sk|pk|rk|ak|gsk|xai|hf|pplx|r8|nvapi|ghp|gho|ghs|glpat|fw|tgp|csk|esecret"
_KEY = re.compile(
    rf"\b(?:{_ISSUED}|key)[-_][\w*.-]{{6,}}"
    r"|\b(?:AKIA|ASIA|AIza|ya29\.)[\w.-]{8,}"
    r"|\beyJ[\w-]{6,}(?:\.[\w-]*)*"
    r"|\b[A-Za-z0-9_]{32,}\b"
    r"|\b[A-Za-z0-9+/]{40,}={0,2}"
)
# What an error's code looks like, and no sentence, key or id: a number, or names that are joined.
# Digits end a name, where a key has them in the middle.
CODE = re.compile(
    rf"(?=.{{1,64}}$)(?!(?:{_ISSUED})[-_]|AKIA|ASIA|eyJ)(?:[0-9]{{1,8}}|"
    r"[A-Za-z]+[0-9]{0,4}(?:[_.:-](?:[A-Za-z]+[0-9]{0,4}|[0-9]{1,6}))*)"
)
_JOINERS = "\u200c\u200d"  # invisible, but some scripts are misspelt without them
# One short word, or an id, which may be as long as a key.
_PLAIN = re.compile(
    r"[\w.-]{1,11}|[^\W_]{1,19}|[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)


@lru_cache(256)  # the same few names come with each call
def is_secret_name(name: str) -> bool:
    """Tell whether what has this name is a secret: a header, a parameter, a key of a mapping.

    Args:
        name: In any case.
    """
    return _SECRET_NAME.search(name.lower()) is not None


def label(text: str) -> str:
    """Return a text whose addresses carry neither logins nor secret parameters.

    Args:
        text: A name, an address or a connection string, of any length.
    """
    if "@" in text:
        text = _LOGIN.sub(f"{_MARK}@", text)
    return _PARAMETER.sub(_shown_parameter, text) if "=" in text else text


def redact(message: str) -> str:
    """Return one line of at most 200 characters without anything that looks like a secret.

    Args:
        message: What a provider or a stranger wrote.
    """
    words = message[:_READ].split()
    if len(message) > _READ and len(words) > 1:
        words.pop()  # cut in the middle, so no longer recognisable
    text = " ".join(words)
    if not text.isprintable():
        text = "".join(filter(str.isprintable, text))
    text = label(text)
    lowered = text.lower()
    if any(map(lowered.__contains__, _HINTS)):
        text = _IN_PROSE.sub(lambda match: match[1] + _MARK, text)
    for word in text.split(" "):
        if len(word) >= _LONG and (len(word) >= _CERTAIN or "-" in word or "_" in word):
            clean = _KEY.sub(_MARK, word)
            if clean != word:
                text = text.replace(word, clean)
    return text if len(text) <= _CAP else text[: _CAP - 1] + "…"


def plain(text: str) -> str:
    """Return a text on one line, without what could act on a terminal or turn its surroundings."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_plain_letter, text))


def _plain_letter(letter: str) -> str:
    if letter.isprintable() or letter in _JOINERS:
        return letter
    return " " if letter.isspace() else "\ufffd"


def call_metadata(given: Any) -> dict[str, Any] | None:
    """Return what a call's ``metadata`` may be of a framework's, where others add to it, too.

    Texts, numbers, booleans and None stay. What has a secret's name is left out, what looks like a
    secret is blackened, and a text is cut to 200 characters. Nothing is refused.

    Args:
        given: The framework's, by name.
    """
    if not given or not isinstance(given, Mapping):
        return None
    kept: dict[str, Any] = {}
    entries = cast("Mapping[object, object]", given)
    for name, value in entries.items():
        if not isinstance(name, str):
            continue
        if value is None or type(value) is bool:
            kept[name] = value
        elif type(value) in {int, float}:
            # Tokens are counted, too; a password may be a number.
            if name.lower().endswith("tokens") or not is_secret_name(name):
                kept[name] = value
        elif isinstance(value, str) and not is_secret_name(name):
            text = str.__str__(value)  # of a subclass, too, that writes itself in another way
            kept[name] = text if _PLAIN.fullmatch(text) else redact(text)
    return kept or None


def _shown_parameter(pair: re.Match[str]) -> str:
    is_count = pair[1].endswith("tokens") and pair[2].isdigit()
    is_shown = is_count or not is_secret_name(unquote(pair[1]))
    return pair[0] if is_shown else f"{pair[1]}={_MARK}"
