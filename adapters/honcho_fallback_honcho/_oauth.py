"""OAuth: a refresh token for an access token, and that for a key where the provider mints keys.

By urllib: what OAuth libraries raise shows ``error_description``, which may quote a token.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPErrorProcessor, Request, build_opener

from honcho_fallback import ApiKey, CredentialError, FallbackConfigError
from honcho_fallback.stores import renew_after_fork
from honcho_fallback_honcho._extras import import_extra
from honcho_fallback_honcho._slots import DEFAULT_NOUS_PORTAL, host_of, is_address

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from http.client import HTTPResponse

_SKEW = 60.0  # seconds before its end from which a token counts as expired
_MOST_BYTES = 1_000_000
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
    Nothing is written unless ``store`` is given, and then to that file and its lock file alone.

    A process that dies between a request and its answer may take the next refresh token along,
    which nobody can recover: the refresh that follows fails, and says what to do.

    Args:
        token_url: The provider's token endpoint.
        client_id: This client's name there.
        refresh_token: The first one; what ``store`` holds is newer and wins.
        store: A file for the state, shared by processes, or None.
        scope: The scope of the token, or None.
        mint: Where access tokens are exchanged for keys, or None.
        timeout: Seconds for each request.

    Raises:
        FallbackConfigError: There is neither a refresh token nor a store, or no address.
        ImportError: There is a store, and the extra ``honcho`` is not installed.
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
            problem, fix = "there is none, and no store", "pass one of the two"
            raise FallbackConfigError.about("refresh_token", problem, fix)
        if not is_address(token_url) or "@" in token_url:  # urllib knows no user in an address
            problem, fix = "it is no address, or one with a user", "pass one without"
            raise FallbackConfigError.about("token_url", problem, fix)
        self._url, self._client_id, self._scope = token_url, client_id, scope
        self._mint, self._timeout = mint, timeout
        # Whoever has the lock for longer than two requests may take hangs.
        self._file = None if store is None else _StateFile(store, patience=4 * timeout)
        self._tokens = _Tokens(refresh_token)
        self._seen: _Tokens | None = None  # what the file held when it was last looked at
        renew_after_fork(self._renew)
        path = "" if self._file is None else str(self._file.path)
        self._log_in = f"log in again, {path and f'move {path} away, '}pass the new refresh token"
        identity = "\0".join((token_url, client_id, path, refresh_token or ""))
        self.fingerprint = ApiKey(identity).fingerprint

    def _renew(self) -> None:
        self._lock = threading.Lock()

    @classmethod
    def nous(
        cls,
        refresh_token: str | None = None,
        store: str | Path | None = None,
        *,
        portal: str = DEFAULT_NOUS_PORTAL,
        timeout: float = 15.0,
    ) -> Self:
        """Return a credential for the Nous portal: an agent key, valid for two hours.

        Args:
            refresh_token: The first one; what ``store`` holds is newer and wins.
            store: A file for the state, or None.
            portal: The portal's address.
            timeout: Seconds for each request.
        """
        token_url = f"{portal.rstrip('/')}/api/oauth/token"
        mint = KeyMint(f"{portal.rstrip('/')}/api/oauth/agent-key")
        scope, client = "inference:mint_agent_key", "hermes-cli"
        return cls(
            token_url, client, refresh_token, store, scope=scope, mint=mint, timeout=timeout
        )

    def __repr__(self) -> str:
        return f"<OAuthCredential {self.fingerprint} for {host_of(self._url)}>"

    def get(self) -> str:
        """Return the token at hand.

        Raises:
            CredentialError: There is none, or it has run out; the policy refreshes it.
        """
        tokens = self._tokens
        if not tokens.is_valid and self._file is not None:
            stored = self._file.read()
            if stored is not None and stored.is_valid and stored != self._seen:
                self._tokens = self._seen = tokens = stored
        if tokens.token is None or not tokens.is_valid:
            raise CredentialError("there is no valid token at hand; it has to be refreshed")
        return tokens.token

    def refresh(self) -> None:
        """Fetch a new token, or take the one that another thread or process has fetched.

        Raises:
            CredentialError: The provider gave none, or the state could not be kept.
        """
        refused = self._tokens
        with self._lock:
            if self._tokens is not refused and self._tokens.is_valid:
                return
            with nullcontext() if self._file is None else self._file.lock():
                stored = None if self._file is None else self._file.read()
                # What stands there unchanged is older than what could not be written.
                if stored is not None and stored != self._seen:
                    self._tokens = self._seen = stored
                    if stored.is_valid:
                        return
                self._fetch()

    def _fetch(self) -> None:
        spent = self._tokens.refresh_token
        if spent is None:
            raise CredentialError(f"there is no refresh token; {self._log_in}")
        self._keep(self._tokens)  # where the state cannot be written, no token is spent
        form = {"grant_type": "refresh_token", "client_id": self._client_id}
        form |= {"refresh_token": spent} | ({"scope": self._scope} if self._scope else {})
        answer = self._post(self._url, urlencode(form).encode(), {}, "access_token")
        key, successor = answer["access_token"], _text(answer, "refresh_token") or spent
        if self._mint is not None:
            self._keep(_Tokens(successor))  # at once: its predecessor may be spent
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            body = json.dumps({"min_ttl_seconds": self._mint.min_ttl}).encode()
            answer = self._post(self._mint.url, body, headers, "api_key")
            key = answer["api_key"]
        self._keep(_Tokens(successor, key, _end(answer)))

    def _keep(self, tokens: _Tokens) -> None:
        self._tokens = tokens
        if self._file is not None:
            self._file.write(tokens)
            self._seen = tokens

    def _post(self, url: str, body: bytes, more: dict[str, str], field: str) -> dict[str, Any]:
        """Return an answer that has the field; of any other only a plain word is shown."""
        where = f"{host_of(url)}{urlsplit(url).path}"
        # Portals behind a web firewall refuse urllib's own name.
        headers = {"Accept": "application/json", "User-Agent": "honcho-fallback"} | more
        try:
            request = Request(url, body, headers)  # noqa: S310 # the operator's own address
            opener = build_opener(_AsAnswered)  # with the proxies of the environment
            with opener.open(request, timeout=self._timeout) as response:
                status, answer = response.status, _object(response.read(_MOST_BYTES))
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", None)
            name = type(reason if isinstance(reason, Exception) else error).__name__
            problem = f"the request to {where} failed: {name}; check the address and the network"
        else:
            if status < 300 and _text(answer, field):
                return answer
            word = str(answer.get("error"))
            problem = f"{where} answered {status} "
            problem += word if _WORD.fullmatch(word) else f"without {field}"
            if word == "invalid_grant":
                problem += ": the refresh token was revoked, or spent by a process that died "
                problem += f"before it had the answer; {self._log_in}"
        # Raised outside of the except block: the error that was caught may refer to a token.
        raise CredentialError(problem)


@dataclass(frozen=True, slots=True, repr=False)
class _Tokens:
    refresh_token: str | None
    token: str | None = None
    expires_at: float | None = None

    @property
    def is_valid(self) -> bool:
        return bool(self.token) and (self.expires_at is None or time.time() < self.expires_at)


class _StateFile:
    """Keep tokens in a private JSON file, replaced as a whole; beside it lies its lock file."""

    def __init__(self, path: str | Path, *, patience: float) -> None:
        self.path = Path(path).expanduser().absolute()
        self._patience = patience
        self._filelock = import_extra("filelock")

    def lock(self) -> AbstractContextManager[Any]:
        """Keep other processes out; one that dies gives its lock back."""
        name = f"{self.path}.lock"
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = self._filelock.FileLock(name, timeout=self._patience, mode=0o600)
            taken: AbstractContextManager[Any] = lock.acquire()
        except OSError as error:  # its Timeout is one
            fix = "look for a process that hangs, check the directory's rights"
            raise CredentialError(f"{name}: {type(error).__name__}; {fix}") from None
        return taken

    def read(self) -> _Tokens | None:
        state, problem = dict[str, Any](), "it holds no refresh token"
        try:
            state = _object(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            problem = type(error).__name__
        refresh_token, ends = _text(state, "refresh_token"), state.get("expires_at")
        if refresh_token is None or not isinstance(ends, int | float | None):
            raise CredentialError(f"{self.path}: {problem}; move it away and log in again")
        return _Tokens(refresh_token, _text(state, "token"), ends)

    def write(self, tokens: _Tokens) -> None:
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            new.unlink(missing_ok=True)  # of a process that was killed while it wrote
            private = partial(os.open, mode=0o600)
            with open(new, "x", encoding="utf-8", opener=private) as file:
                json.dump(asdict(tokens), file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            fix = "free space, check the directory's rights"
            raise CredentialError(f"{self.path}: {error.strerror}; {fix}") from None
        finally:
            new.unlink(missing_ok=True)


class _AsAnswered(HTTPErrorProcessor):
    """Return every answer as it came: no redirect is followed with a token."""

    def http_response(self, request: Request, response: HTTPResponse) -> HTTPResponse:  # noqa: ARG002 # as urllib calls it
        return response

    https_response = http_response


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}  # pyright: ignore[reportUnknownVariableType] # JSON


def _text(document: dict[str, Any], field: str) -> str | None:
    text = document.get(field)
    return text if isinstance(text, str) and text else None


def _end(answer: dict[str, Any]) -> float | None:
    seconds = answer.get("expires_in")
    if isinstance(seconds, int | float) and 0 < seconds < 1e9:
        return time.time() + seconds - min(_SKEW, seconds / 2)
    return None
