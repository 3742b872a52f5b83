"""The layers a call may go through, each with the same four ways to ask."""

from soak.lanes.lane import Lane

__all__ = ["Lane"]
