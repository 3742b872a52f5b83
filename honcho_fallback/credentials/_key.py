"""A key that never changes."""

from __future__ import annotations

from hashlib import sha256

from honcho_fallback.credentials._errors import CredentialError


def fingerprint(*parts: str) -> str:
    """Tell credentials apart without showing them."""
    return sha256("\0".join(parts).encode()).hexdigest()[:16]


class ApiKey:
    """Hold a static key, so that a shared cooldown knows its target in every process.

    Args:
        key: The key; never shown.
    """

    __slots__ = ("_key", "fingerprint")

    def __init__(self, key: str) -> None:
        self._key = key
        self.fingerprint = fingerprint(key)

    def __repr__(self) -> str:
        return f"<ApiKey {self.fingerprint}>"

    def get(self) -> str:
        """Return the key."""
        return self._key

    def refresh(self) -> None:
        """Refuse: there is no other.

        Raises:
            CredentialError: Always.
        """
        raise CredentialError("a static key has no refresh; replace it")
