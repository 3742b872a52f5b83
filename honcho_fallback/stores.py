"""What a cooldown store of your own takes and returns; ``RedisCooldown`` is one."""

from honcho_fallback._core.shared import (
    CooldownChoice,
    CooldownReport,
    CooldownStore,
    Keys,
    SharedCooldown,
)

__all__ = ["CooldownChoice", "CooldownReport", "CooldownStore", "Keys", "SharedCooldown"]
