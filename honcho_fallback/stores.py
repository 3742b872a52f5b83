"""What a cooldown store of your own takes, returns and needs; ``RedisCooldown`` is one."""

from honcho_fallback._core.shared import (
    CooldownChoice,
    CooldownReport,
    CooldownStore,
    Keys,
    SharedCooldown,
    renew_after_fork,
)

__all__ = [
    "CooldownChoice",
    "CooldownReport",
    "CooldownStore",
    "Keys",
    "SharedCooldown",
    "renew_after_fork",
]
