"""Tool failures: what they mean, and when to stop."""

__all__: list[str] = []
