"""What every adapter needs, and whoever asks by raw SDKs: providers, their clients, histories.

SDK clients as a chain has to ask them, targets by address and account, histories that another
provider accepts, and what of a request goes to no other.

Nothing here imports an SDK or a framework.
"""

from honcho_fallback.providers._clients import (
    distinct_name,
    owner_of,
    place_of,
    with_key,
    with_place,
    with_timeout,
    without_retries,
)
from honcho_fallback.providers._history import bound_to, can_think, portable
from honcho_fallback.providers._provider import CallIds, Provider, route_in

__all__ = [
    "CallIds",
    "Provider",
    "bound_to",
    "can_think",
    "distinct_name",
    "owner_of",
    "place_of",
    "portable",
    "route_in",
    "with_key",
    "with_place",
    "with_timeout",
    "without_retries",
]
