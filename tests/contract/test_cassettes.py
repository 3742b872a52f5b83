"""What may stand in a cassette, checked apart from the code that records them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from vcr.serialize import deserialize
from vcr.serializers import yamlserializer

CASSETTES = Path(__file__).resolve().parents[2] / "cassettes"
FILES = sorted(CASSETTES.rglob("*.yaml"))
HOSTS = {"api.openai.com", "api.anthropic.com", "localhost:1234"}
HEADERS = {
    "anthropic-beta",
    "anthropic-version",
    "content-type",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
}
SECRETS = re.compile(
    r"\bsk-\w{4}|bearer |x-api-key|127\.0\.0\.1|/home/|/tmp/|/root/", re.IGNORECASE
)

pytestmark = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def test_a_cassette_says_first_what_it_was_recorded_against(path: Path) -> None:
    """The first line is a comment that names the speaker for each host."""
    text = path.read_text("utf-8")
    first = text.splitlines()[0]
    requests, _ = deserialize(text, yamlserializer)

    assert first.startswith("# Recorded through mitmproxy ")
    assert all(f"{urlsplit(request.uri).netloc} is " in first for request in requests)


def test_a_cassette_keeps_real_addresses_and_listed_headers_only(path: Path) -> None:
    """Requests go to providers' own addresses; no header is kept but those a client reads."""
    requests, responses = deserialize(path.read_text("utf-8"), yamlserializer)

    assert {urlsplit(request.uri).netloc for request in requests} <= HOSTS
    kept = [request.headers for request in requests] + [answer["headers"] for answer in responses]
    assert {name.lower() for headers in kept for name in headers} <= HEADERS


def test_a_cassette_holds_no_key_and_no_trace_of_a_machine(path: Path) -> None:
    """Nothing in the file looks like a key, a local address or a folder."""
    assert not SECRETS.search(path.read_text("utf-8"))
