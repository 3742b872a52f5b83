"""A LiteLLM Proxy whose model group is a chain; its clients need to know nothing of it.

Run:     python examples/litellm_proxy.py  (starts `litellm --config`, which takes some 15 s)
Install: pip install 'honcho-fallback[litellm]' 'litellm[proxy]'
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import openai

from endpoints import endpoints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from endpoints import Endpoint

CONFIG = Path(__file__).with_name("litellm_proxy") / "config.yaml"
KEY = "sk-the-master-key-of-this-example"


def main() -> None:
    """Ask the Proxy as any client of OpenAI's would; the headers say who answered."""
    with endpoints() as (primary, fallback), proxy(primary, fallback) as url:
        client = openai.OpenAI(base_url=url, api_key=KEY, max_retries=0)
        response = client.chat.completions.with_raw_response.create(
            model="deriver", messages=[{"role": "user", "content": "Say good morning."}]
        )
        print(response.parse().choices[0].message.content)
        for name, value in response.headers.items():
            if name.startswith("x-honcho-fallback-"):
                print(f"{name}: {value}")


@contextmanager
def proxy(primary: Endpoint, fallback: Endpoint) -> Iterator[str]:
    """Run the Proxy, yield its address once it listens, and stop it."""
    port = secrets.choice(range(20_000, 30_000))  # none that an outgoing connection is given
    environ = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": KEY}
    for one in (primary, fallback):
        environ[f"{one.name.upper()}_API_KEY"] = one.api_key
        environ[f"{one.name.upper()}_BASE_URL"] = one.base_url
    program = Path(sys.executable).with_name("litellm")
    if not program.exists():
        sys.exit(f"{program} is missing: pip install 'litellm[proxy]'")
    command = [str(program), "--config", str(CONFIG), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            while not is_live(url):
                if process.poll() is not None:
                    sys.exit(f"litellm ended with status {process.returncode} before it listened")
                time.sleep(0.2)
            yield url
        finally:
            process.terminate()


def is_live(url: str) -> bool:
    """Tell whether the Proxy answers."""
    with suppress(OSError), urllib.request.urlopen(f"{url}/health/liveliness", timeout=1):
        return True
    return False


if __name__ == "__main__":
    main()
