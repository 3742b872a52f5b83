"""Short runs of the soak: what hangs is waited for as long as a quiet machine needs."""

from __future__ import annotations

import os

os.environ["SOAK_TIMEOUT"] = "1.5"
