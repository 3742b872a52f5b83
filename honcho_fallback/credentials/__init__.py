"""Credentials that are refreshed: one refresh for many callers, OAuth, a file for its state."""

from honcho_fallback.credentials._errors import CredentialError
from honcho_fallback.credentials._key import ApiKey
from honcho_fallback.credentials._oauth import KeyMint, OAuthCredential

__all__ = ["ApiKey", "CredentialError", "KeyMint", "OAuthCredential"]
