"""A credential that is refreshed: load_policies(credentials={"nous": NousKey()}).

Run:     python examples/nous_key.py  (once; set NOUS_REFRESH_TOKEN to the one of the login)
Install: pip install honcho-fallback httpx filelock
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from filelock import FileLock

from honcho_fallback import CredentialError


class NousKey:
    """Hold an agent key of the Nous portal, and the refresh token that mints the next.

    A refresh token is good for one use: its successor is on disk before anything else is done,
    and processes take turns. In a process the policy lets one call refresh for all that wait.
    """

    fingerprint = "nous"  # processes that share a cooldown know the account by it

    def __init__(
        self, path: str = "~/.honcho/nous.json", portal: str = "https://portal.nousresearch.com"
    ) -> None:
        self._path, self._portal, self._used = Path(path).expanduser(), portal, ""

    def get(self) -> str:
        """Return the key; where it has run out, the policy calls refresh and asks again."""
        state = json.loads(self._path.read_text()) if self._path.exists() else {}
        if state.get("ends", 0) < time.time():
            raise CredentialError("there is no valid key at hand")
        self._used = state["key"]
        return self._used

    def refresh(self) -> None:
        """Mint a key, unless another process just has."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(f"{self._path}.lock", timeout=60, mode=0o600):
            state = json.loads(self._path.read_text()) if self._path.exists() else {}
            if state.get("ends", 0) > time.time() and state["key"] != self._used:
                return
            spent = state.get("refresh_token") or os.environ["NOUS_REFRESH_TOKEN"]
            form = {"grant_type": "refresh_token", "refresh_token": spent}
            form |= {"client_id": "hermes-cli", "scope": "inference:mint_agent_key"}
            token = self._post("token", data=form)
            state = {"refresh_token": token.get("refresh_token", spent)}
            self._write(state)
            bearer = {"Authorization": f"Bearer {token['access_token']}"}
            key = self._post("agent-key", headers=bearer, json={"min_ttl_seconds": 7200})
            ends = time.time() + key["expires_in"] - 60
            self._write(state | {"key": key["api_key"], "ends": ends})

    def _post(self, path: str, **content: Any) -> Any:
        response = httpx.post(f"{self._portal}/api/oauth/{path}", timeout=15, **content)
        if not response.is_success:  # its text may quote the token
            advice = f"move {self._path} away, and log in again"
            raise CredentialError(f"the portal answered {response.status_code}; {advice}")
        return response.json()

    def _write(self, state: dict[str, Any]) -> None:
        new = self._path.with_suffix(".new")
        new.touch(0o600)
        new.write_text(json.dumps(state))
        new.replace(self._path)


if __name__ == "__main__":
    if "NOUS_REFRESH_TOKEN" not in os.environ:
        sys.exit("set NOUS_REFRESH_TOKEN to the token that the portal gave at the login")
    NousKey().refresh()
