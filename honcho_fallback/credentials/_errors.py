"""What is raised where there is no valid credential."""

from __future__ import annotations

from honcho_fallback import FallbackError


class CredentialError(FallbackError):
    """Tell that a credential is missing or could not be refreshed; never shows one.

    Raised by ``get`` inside `ask`, it counts as the provider's 401: the credential is refreshed.
    """

    status_code = 401
