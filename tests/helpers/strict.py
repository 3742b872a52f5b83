"""The rules of the providers' APIs: what a strict provider refuses with status 400.

A provider remembers what it wrote (signatures, item ids, encrypted data), because only that may
come back to it.
"""

from __future__ import annotations

import base64
import json
import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.helpers.wire import Json

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
THOUGHTS = frozenset({"redacted_thinking", "thinking"})
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")


def _words(table: Any) -> Any:
    """Return a table with its texts cut into words."""
    if isinstance(table, str):
        return frozenset(table.split())
    return {name: _words(value) for name, value in table.items()}


TABLES = _words(tomllib.loads(Path(__file__).with_name("strict.toml").read_text("utf-8")))


def _unknown_fields(where: str, part: Json, known: Iterable[str]) -> list[str]:
    return [f"{where}.{name}: extra inputs are not permitted" for name in part.keys() - {*known}]


def _faults_of_parts(
    where: str, content: list[Json], known: Mapping[str, Iterable[str]]
) -> list[str]:
    faults = []
    for at, part in enumerate(content):
        place, kind = f"{where}.content[{at}]", str(part.get("type"))
        if kind in known:
            faults += _unknown_fields(place, part, ("type", *known[kind]))
        else:
            faults.append(f"{place}: invalid value {kind!r}")
    return faults


class Rules:
    """The rules of one endpoint, and what its provider wrote.

    Attributes:
        knows: The request's top-level fields.
        remembered: The fields of what it wrote that only it can have written.
    """

    knows: ClassVar[frozenset[str]]
    remembered: ClassVar[frozenset[str]]

    def __init__(self) -> None:
        self.wrote: set[str] = set()

    def remember(self, answer: Any) -> None:
        """Note what of an answer may come back to this provider alone."""
        if isinstance(answer, dict):
            for name, value in answer.items():
                if name in self.remembered and isinstance(value, str):
                    self.wrote.add(value)
                self.remember(value)
        elif isinstance(answer, list):
            for part in answer:
                self.remember(part)

    def faults(self, body: Json) -> list[str]:
        unknown = [f"{name}: unknown parameter" for name in body.keys() - self.knows]
        return unknown + self._faults(body)

    def _faults(self, body: Json) -> list[str]:
        raise NotImplementedError


class AnthropicRules(Rules):
    """The Messages API.

    Attributes:
        thinks_by_default: Whether the model thinks where a request does not say.
    """

    def __init__(self, *, thinks_by_default: bool = True) -> None:
        super().__init__()
        self.thinks_by_default = thinks_by_default

    knows, remembered = TABLES["anthropic"]["knows"], TABLES["anthropic"]["remembered"]
    blocks = TABLES["anthropic"]["blocks"]

    def _faults(self, body: Json) -> list[str]:
        messages = body["messages"]
        roles = [message["role"] for message in messages]
        faults = []
        if roles[:1] != ["user"]:
            faults.append("messages: first message must use the user role")
        if any(one == two for one, two in pairwise(roles)):
            faults.append("messages: roles must alternate")
        for at, message in enumerate(messages):
            faults += self._message(f"messages.{at}", message)
        faults += self._pairs(messages)
        system = body.get("system")
        for at, block in enumerate(system if isinstance(system, list) else []):
            faults += self._block(f"system.{at}", block, {"text": ("text",)})
        for at, tool in enumerate(body.get("tools", [])):
            if not {"name", "input_schema"} <= tool.keys():
                faults.append(f"tools.{at}: name and input_schema are required")
        if "max_tokens" not in body:
            faults.append("max_tokens: field required")
        if "tools" not in body and any(_values(one, "tool_use", "id") for one in messages):
            faults.append("tools: required where messages have tool_use blocks")
        faults += self._thoughts(messages, body.get("thinking", {}).get("type"))
        return faults

    def _thoughts(self, messages: list[Json], mode: str | None) -> list[str]:
        """Hold a turn, tools and all, to one mode of thinking; earlier turns may differ.

        Without interleaved thinking a model thinks at the start of a turn alone, so that its own
        later calls have none before them. What thinks adaptively takes either.
        """
        is_off = mode == "disabled" or (mode is None and not self.thinks_by_default)
        begun = [
            at
            for at, message in enumerate(messages)
            if message["role"] == "user" and not _values(message, "tool_result", "tool_use_id")
        ]
        faults = []
        is_first = True
        for at, message in enumerate(messages[max(begun, default=0) :], max(begun, default=0)):
            content, calls = message["content"], _values(message, "tool_use", "id")
            kinds = ["text"] if isinstance(content, str) else [one["type"] for one in content]
            if is_off and not THOUGHTS.isdisjoint(kinds):
                faults.append(f"messages.{at}: without thinking no thinking block may be sent")
            # Nothing in a call says who made it but its id.
            is_own = not is_first and all(call.startswith("toolu_") for call in calls)
            if mode == "enabled" and calls and kinds[0] not in THOUGHTS and not is_own:
                faults.append(f"messages.{at}: a thinking block must come before tool_use")
            is_first = is_first and not calls
        return faults

    def _message(self, where: str, message: Json) -> list[str]:
        content = message["content"]
        if not content:
            return [f"{where}: all messages must have non-empty content"]
        if isinstance(content, str):
            return [] if content.strip() else [f"{where}: text must be non-whitespace"]
        known = self.blocks.get(message["role"], {})
        return [
            fault
            for at, block in enumerate(content)
            for fault in self._block(f"{where}.content.{at}", block, known)
        ]

    def _block(self, where: str, block: Json, known: Mapping[str, Iterable[str]]) -> list[str]:
        kind = str(block.get("type"))
        if kind not in known:
            return [f"{where}: unexpected block type {kind!r}"]
        faults = _unknown_fields(where, block, ("type", "cache_control", *known[kind]))
        if kind == "text" and not str(block.get("text", "")).strip():
            faults.append(f"{where}: text must be non-whitespace")
        for name in ("id", "tool_use_id"):
            if name in block and not ANTHROPIC_ID.fullmatch(block[name]):
                faults.append(f"{where}.{name}: must match {ANTHROPIC_ID.pattern}")
        written = {
            "thinking": "signature",
            "redacted_thinking": "data",
            "server_tool_use": "id",
            "web_search_tool_result": "tool_use_id",
        }
        if kind in written and block.get(written[kind]) not in self.wrote:
            faults.append(f"{where}: invalid `{written[kind]}` in `{kind}` block")
        return faults

    @staticmethod
    def _pairs(messages: list[Json]) -> list[str]:
        faults = []
        open_calls: list[str] = []
        seen: set[str] = set()
        for at, message in enumerate(messages):
            results = _values(message, "tool_result", "tool_use_id")
            if sorted(results) != sorted(open_calls):
                faults.append(f"messages.{at}: tool_use {open_calls} but tool_result {results}")
            open_calls = _values(message, "tool_use", "id")
            if len(set(open_calls)) != len(open_calls) or not seen.isdisjoint(open_calls):
                faults.append(f"messages.{at}: tool_use ids must be unique")
            seen.update(open_calls)
        return [*faults, *(f"tool_use {name} without a tool_result" for name in open_calls)]


class GoogleRules(Rules):
    """The generateContent API as it is on the wire: signatures are checked as Gemini 3 does."""

    knows, remembered = TABLES["google"]["knows"], TABLES["google"]["remembered"]
    data = TABLES["google"]["data"]
    # In the words of Google's documentation, for calls that another model made.
    placeholder = "skip_thought_signature_validator"
    unsigned = frozenset({placeholder, base64.b64encode(placeholder.encode()).decode()})

    def _faults(self, body: Json) -> list[str]:
        faults = []
        open_calls: list[str] = []
        for at, content in enumerate(_camel(body["contents"])):
            where = f"contents[{at}]"
            if content.get("role") not in {"user", "model"}:
                faults.append(f"{where}: a role is required")
            names = [
                part["functionResponse"]["name"] for part in _parts(content, "functionResponse")
            ]
            if open_calls and names != open_calls:
                faults.append(f"{where}: calls of {open_calls}, responses of {names}")
            calls = _parts(content, "functionCall")
            open_calls = [part["functionCall"]["name"] for part in calls]
            signature = calls[0].get("thoughtSignature") if calls else None
            if calls and signature not in self.wrote | self.unsigned:
                faults.append(f"{where}: function call is missing a thought_signature")
            faults += self.faults_of_parts(where, content)
        return faults

    def faults_of_parts(self, where: str, content: Json) -> list[str]:
        faults = [] if content.get("parts") else [f"{where}: parts must not be empty"]
        for place, part in enumerate(content.get("parts") or []):
            fields = part.keys() - {"thought", "thoughtSignature"}
            if len(fields) != 1 or not fields <= self.data:
                faults.append(f"{where}.parts[{place}]: {sorted(part)} is no part")
            if "inlineData" in part and not part["inlineData"].get("mimeType"):
                faults.append(f"{where}.parts[{place}]: mimeType required")
        return faults


class GeminiRules(GoogleRules):
    """The same of contents alone, as an integration writes them: whose they are is not known."""

    def _faults(self, body: Json) -> list[str]:
        faults: list[str] = []
        for at, content in enumerate(_camel(body["contents"])):
            faults += self.faults_of_parts(f"contents[{at}]", content)
        return faults


def _camel(value: Any) -> Any:
    """Spell names as Google's JSON does; it takes both spellings."""
    if isinstance(value, list):
        return [_camel(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        re.sub("_([a-z])", lambda match: match[1].upper(), name): (
            one if name in {"args", "response"} else _camel(one)
        )
        for name, one in value.items()
    }


def _parts(content: Json, kind: str) -> list[Json]:
    return [part for part in content.get("parts") or [] if kind in part]


def _values(message: Json, kind: str, field: str) -> list[str]:
    content = message["content"]
    if isinstance(content, str):
        return []
    return [block[field] for block in content if block.get("type") == kind]


class ChatRules(Rules):
    knows, remembered = TABLES["chat"]["knows"], TABLES["chat"]["remembered"]
    fields, parts = TABLES["chat"]["fields"], TABLES["chat"]["parts"]

    def _faults(self, body: Json) -> list[str]:
        faults = []
        open_calls: list[str] = []
        for at, message in enumerate(body["messages"]):
            where, role = f"messages[{at}]", message["role"]
            faults += _unknown_fields(where, message, ("role", *self.fields[role]))
            faults += self._content(where, message)
            if role == "tool":
                if message["tool_call_id"] in open_calls:
                    open_calls.remove(message["tool_call_id"])
                else:
                    faults.append(f"{where}: role 'tool' must follow its 'tool_calls'")
                continue
            faults += [f"{where}: no tool message for {name}" for name in open_calls]
            calls = message.get("tool_calls") or []
            open_calls = [call["id"] for call in calls]
            faults += self._calls(where, calls)
        faults += [f"no tool message for {name}" for name in open_calls]
        for at, tool in enumerate(body.get("tools", [])):
            faults += _unknown_fields(f"tools[{at}]", tool, ("type", "function"))
        return faults

    def _content(self, where: str, message: Json) -> list[str]:
        content = message.get("content")
        if content is None:
            has_calls = message.get("tool_calls")
            return [] if has_calls else [f"{where}.content: expected a string, got null"]
        if isinstance(content, str):
            return []
        known = {kind: (kind,) for kind in self.parts.get(message["role"], ("text",))}
        faults = [] if content else [f"{where}.content: empty array"]
        return faults + _faults_of_parts(where, content, known)

    @staticmethod
    def _calls(where: str, calls: list[Json]) -> list[str]:
        faults = []
        for at, call in enumerate(calls):
            place = f"{where}.tool_calls[{at}]"
            faults += _unknown_fields(place, call, ("id", "type", "function"))
            if not 1 <= len(call["id"]) <= 40:
                faults.append(f"{place}.id: expected a string with maximum length 40")
            if not NAME.fullmatch(call["function"]["name"]):
                faults.append(f"{place}.function.name: must match {NAME.pattern}")
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                faults.append(f"{place}.function.arguments: must be an object")
        return faults


class ResponsesRules(Rules):
    knows, remembered = TABLES["responses"]["knows"], TABLES["responses"]["remembered"]
    items, parts = TABLES["responses"]["items"], TABLES["responses"]["parts"]
    user_parts = TABLES["responses"]["user_parts"]

    def _faults(self, body: Json) -> list[str]:
        faults = []
        open_calls: list[str] = []
        answered_calls: list[str] = []
        for at, item in enumerate(body["input"]):
            where, kind = f"input[{at}]", item.get("type", "message")
            if kind not in self.items:
                faults.append(f"{where}: invalid item type {kind!r}")
                continue
            faults += _unknown_fields(where, item, ("type", *self.items[kind]))
            faults += [
                f"{where}.{name}: {item[name]!r} not found"
                for name in ("id", "encrypted_content")
                if item.get(name) is not None
                and item[name] not in self.wrote
                # An item that stands by itself, whoever wrote it.
                and kind != "mcp_approval_request"
            ]
            if kind == "message":
                faults += self._content(where, item)
            call = item.get("call_id") or item.get("approval_request_id") or item.get("id")
            if kind.endswith(("_call", "_request")) and kind != "web_search_call":
                open_calls.append(f"{kind.rpartition('_')[0]} {call}")
            if kind.endswith(("_call_output", "_response")):
                kind = kind.removesuffix("_output").rpartition("_")[0]
                answered_calls.append(f"{kind} {call}")
                if answered_calls[-1] not in open_calls:
                    faults.append(f"{where}: no {kind} found for {call}")
        faults += [
            f"no tool output found for {name}" for name in open_calls if name not in answered_calls
        ]
        call_ids = [name.partition(" ")[2] for name in open_calls]
        faults += [f"call_id {name!r}: maximum length 64" for name in call_ids if len(name) > 64]
        previous = body.get("previous_response_id")
        if previous is not None and previous not in self.wrote:
            faults.append(f"previous response {previous!r} not found")
        return faults

    def _content(self, where: str, item: Json) -> list[str]:
        if isinstance(item["content"], str):
            return []
        known = self.parts.get(item["role"], self.user_parts)
        return _faults_of_parts(where, item["content"], known)
