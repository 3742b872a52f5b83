"""OAuth: a refresh token for an access token, and that for a key where the provider mints keys."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from honcho_fallback import ApiKey, CredentialError, FallbackConfigError
from honcho_fallback_honcho._store import FileStore

_SKEW = 60.0  # seconds before its end from which a token counts as expired
_WORD = re.compile(r"[a-z_]{3,40}")


@dataclass(frozen=True, slots=True)
class KeyMint:
    """Say where an access token is exchanged for a key.

    Args:
        url: Takes the access token as bearer; answers with ``api_key`` and ``expires_in``.
        min_ttl: Seconds that the key has to be valid.
    """

    url: str
    min_ttl: int = 7200


class OAuthCredential:
    """Hold a token that is refreshed where it is refused or has run out; one refresh at a time.

    A provider often accepts a refresh token only once, so threads, tasks and (where ``store`` is
    given) processes take turns, and those that waited use the token that the first one fetched.
    Nothing is written unless ``store`` is given, and then to that file alone.

    Args:
        token_url: The provider's token endpoint.
        client_id: This client's name there.
        refresh_token: The first one; what ``store`` holds is newer and wins.
        store: A file for the state, shared by processes, or None.
        scope: The scope of the token, or None.
        mint: Where access tokens are exchanged for keys, or None.
        timeout: Seconds for each request.

    Raises:
        FallbackConfigError: There is neither a refresh token nor a store.
    """

    def __init__(  # noqa: PLR0913 # one per setting of the provider
        self,
        token_url: str,
        client_id: str,
        refresh_token: str | None = None,
        store: str | Path | None = None,
        *,
        scope: str | None = None,
        mint: KeyMint | None = None,
        timeout: float = 15.0,
    ) -> None:
        if not refresh_token and store is None:
            raise FallbackConfigError.about(
                "refresh_token", "there is none, and no store", "pass one of the two"
            )
        self._url, self._client_id, self._scope = token_url, client_id, scope
        self._mint, self._timeout = mint, timeout
        path = None if store is None else Path(store).expanduser()
        self._store = None if path is None else FileStore(path)
        self._state: dict[str, Any] = {"refresh_token": refresh_token}
        self._lock = threading.Lock()
        self.generation = 0
        identity = str(path.absolute()) if path else refresh_token or ""
        self.fingerprint = ApiKey("\0".join((token_url, client_id, identity))).fingerprint

    @classmethod
    def nous(
        cls, refresh_token: str | None = None, store: str | Path | None = None, **options: Any
    ) -> Self:
        """Return a credential for the Nous portal: an agent key, valid for two hours.

        Args:
            refresh_token: The first one.
            store: A file for the state, or None.
            **options: As for the constructor; ``portal`` for another address.
        """
        portal = options.pop("portal", "https://portal.nousresearch.com")
        preset: dict[str, Any] = {
            "token_url": f"{portal}/api/oauth/token",
            "client_id": "hermes-cli",
            "scope": "inference:mint_agent_key",
            "mint": KeyMint(f"{portal}/api/oauth/agent-key"),
        }
        return cls(refresh_token=refresh_token, store=store, **(preset | options))

    def __repr__(self) -> str:
        return f"<OAuthCredential {self.fingerprint} for {self._url}>"

    def get(self) -> str:
        """Return the token at hand.

        Raises:
            CredentialError: There is none, or it has run out; the policy refreshes it.
        """
        if not _valid(self._state) and self._store is not None:
            self._adopt(self._store.read())
        if not _valid(self._state):
            raise CredentialError("no valid token at hand; it has to be refreshed")
        return str(self._state["token"])

    def refresh(self) -> None:
        """Fetch a new token, or take the one that another thread or process has fetched."""
        self.renew(self.generation)

    def renew(self, generation: object) -> None:
        """Fetch a new token, unless another thread or process has done so since.

        Args:
            generation: The one that was refused.

        Raises:
            CredentialError: The provider gave none.
        """
        with self._lock:
            if self.generation != generation:
                return
            with nullcontext() if self._store is None else self._store.locked():
                if self._store is None or not self._adopt(self._store.read()):
                    self._fetch()
            self.generation += 1

    def _adopt(self, stored: dict[str, Any]) -> bool:
        """Take the state that another process stored; tell whether its token is new."""
        if not stored.get("refresh_token"):
            return False
        is_new = _valid(stored) and stored.get("token") != self._state.get("token")
        self._state = stored
        return is_new

    def _fetch(self) -> None:
        form = {
            "grant_type": "refresh_token",
            "client_id": self._client_id,
            "refresh_token": self._state["refresh_token"],
        }
        if self._scope:
            form["scope"] = self._scope
        answer = self._post(self._url, urllib.parse.urlencode(form).encode(), {})
        token = _text(answer, "access_token")
        state = {
            "refresh_token": answer.get("refresh_token") or self._state["refresh_token"],
            "token": token,
            "expires_at": _end(answer),
        }
        self._keep(state if self._mint is None else state | {"token": None})
        if self._mint is not None:
            body = json.dumps({"min_ttl_seconds": self._mint.min_ttl}).encode()
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            key = self._post(self._mint.url, body, headers)
            self._keep(state | {"token": _text(key, "api_key"), "expires_at": _end(key)})

    def _keep(self, state: dict[str, Any]) -> None:
        # At once: the refresh token that led here may be spent, whatever fails from now on.
        self._state = state
        if self._store is not None:
            self._store.write(state)

    def _post(self, url: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        request = urllib.request.Request(url, body, headers)  # noqa: S310 # the operator's own address
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:  # noqa: S310 # as above
                document = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise CredentialError(
                    f"{url} answered {error.code}{_reason(error.read())}"
                ) from None
        except (OSError, ValueError) as error:
            raise CredentialError(f"{url}: {type(error).__name__}") from None
        if not isinstance(document, dict):
            raise CredentialError(f"{url} answered with no JSON object")
        return {str(key): value for key, value in document.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] # JSON


def _valid(state: dict[str, Any]) -> bool:
    ends = state.get("expires_at")
    return bool(state.get("token")) and (ends is None or time.time() < ends - _SKEW)


def _end(answer: dict[str, Any]) -> float | None:
    seconds = answer.get("expires_in")
    return time.time() + seconds if isinstance(seconds, int | float) else None


def _text(answer: dict[str, Any], field: str) -> str:
    value = answer.get(field)
    if not isinstance(value, str) or not value:
        raise CredentialError(f"the answer has no {field}")
    return value


def _reason(body: bytes) -> str:
    """Return the error's code if it is a plain word; nothing else of an answer is ever shown."""
    try:
        code = json.loads(body).get("error")
    except (ValueError, AttributeError):
        return ""
    return f" {code}" if isinstance(code, str) and _WORD.fullmatch(code) else ""
