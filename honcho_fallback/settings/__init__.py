"""Honcho's own configuration: its names to policies, its targets to SDK clients and calls.

``load_policies`` needs the extra ``settings``; what asks a provider needs the extra ``providers``.
Both are imported when they are needed and not before.
"""

from honcho_fallback.settings._endpoint import Endpoint, MissingKeyError
from honcho_fallback.settings._load import load_policies

__all__ = ["Endpoint", "MissingKeyError", "load_policies"]
