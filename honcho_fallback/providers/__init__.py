"""What every adapter needs, and whoever asks by raw SDKs: providers, their clients, histories.

- ``without_retries``, ``with_key``, ``with_timeout``: an SDK's client as a chain has to ask it;
- ``portable``: a history of one provider as another accepts it, also in the middle of a tool loop;
- ``can_think``: whether Anthropic would think on a history;
- ``bound_to``: what of a request can go to no other provider at all;
- ``route_in``: what of a request chooses another model or address than its target's;
- ``with_place``, ``place_of``: a target's address and account, and a name for both;
- ``distinct_name``: what a target is called where its name is taken;
- ``Provider``: which settings, headers and markers a provider takes.

Nothing here imports an SDK or a framework.
"""

from honcho_fallback.providers._clients import (
    distinct_name,
    owner_of,
    with_key,
    with_place,
    with_timeout,
    without_retries,
)
from honcho_fallback.providers._history import can_think, portable
from honcho_fallback.providers._provider import CallIds, Provider
from honcho_fallback.providers._routes import bound_to, place_of, route_in

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
