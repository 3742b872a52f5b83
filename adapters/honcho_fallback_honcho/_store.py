"""A file for the state of a credential: private from its first byte, replaced as a whole."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from honcho_fallback import CredentialError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment] # looked at before it is used

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


class FileStore:
    """Keep state in one JSON file; the directory is made with mode 0700, the file with 0600.

    Args:
        path: The file; beside it lies a lock file of the same name and ``.lock``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Any]:
        """Return the state, empty where there is none."""
        try:
            state = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise CredentialError(f"{self._path} is unreadable: {type(error).__name__}") from None
        if not isinstance(state, dict):
            raise CredentialError(f"{self._path} holds no JSON object; move it away")
        return {str(key): value for key, value in state.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] # JSON

    def write(self, state: dict[str, Any]) -> None:
        """Replace the state."""
        # mkstemp creates with 0600, so that there is no moment in which others could read it.
        handle, name = tempfile.mkstemp(prefix=self._path.name, dir=self._path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(state, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self._path)  # noqa: PTH105 # the name comes from mkstemp
        except BaseException:
            os.unlink(name)  # noqa: PTH108 # as above
            raise

    @contextmanager
    def locked(self) -> Generator[None, None, None]:
        """Keep other processes out while a refresh token is being spent."""
        if fcntl is None:
            raise CredentialError("a store needs POSIX file locks; leave store= out here")
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(
                lock, fcntl.LOCK_EX
            )  # given back with the handle, also by a process that dies
            yield
        finally:
            os.close(lock)
