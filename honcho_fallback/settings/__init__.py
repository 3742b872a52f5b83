"""Honcho's own configuration: its names to policies, its targets to SDK clients and calls.

``load_policies`` needs the extra ``settings``; what asks a provider needs the extra ``providers``.
Both are imported when they are needed and not before.
"""

from honcho_fallback.settings._call import (
    CallOptions,
    ahoncho_call,
    ahoncho_stream,
    honcho_call,
    honcho_stream,
)
from honcho_fallback.settings._clients import aclose_clients, build_client, close_clients
from honcho_fallback.settings._endpoint import Endpoint, MissingKeyError
from honcho_fallback.settings._load import load_policies
from honcho_fallback.settings._messages import Message, ToolCall
from honcho_fallback.settings._request import Reply, Tool

__all__ = [
    "CallOptions",
    "Endpoint",
    "Message",
    "MissingKeyError",
    "Reply",
    "Tool",
    "ToolCall",
    "aclose_clients",
    "ahoncho_call",
    "ahoncho_stream",
    "build_client",
    "close_clients",
    "honcho_call",
    "honcho_stream",
    "load_policies",
]
