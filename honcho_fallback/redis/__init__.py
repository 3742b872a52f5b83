"""A cooldown that several processes share; needs the extra ``redis``."""

from honcho_fallback.redis._cooldown import RedisCooldown

__all__ = ["RedisCooldown"]
