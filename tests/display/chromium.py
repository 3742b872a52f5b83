"""Headless Chromium over its DevTools pipe: pages opened, pixels and complaints read."""

from __future__ import annotations

import base64
import json
import os
import select
import struct
import subprocess
import sys
import zlib
from contextlib import contextmanager
from functools import cache
from itertools import count
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Colour = tuple[int, int, int]

_QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
)
# The pipe's two ends have to be 3 and 4; from up there they do not overwrite each other.
_TRAMPOLINE = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 20) for end in sys.argv[1:3]]
for end, place in zip(ends, (3, 4)):
    os.dup2(end, place)
os.execvp(sys.argv[3], sys.argv[3:])
"""
_PATIENCE = 40.0


class Box(NamedTuple):
    """Where an element lies, in pixels."""

    x: float
    y: float
    width: float
    height: float


class Picture:
    """The pixels of a PNG as Chromium writes it: 8 bits, RGB or RGBA, not interlaced."""

    def __init__(self, png: bytes) -> None:
        at, packed = 8, b""
        self.width, self.height, depth, kind = struct.unpack_from(">IIBB", png, 16)
        assert (depth, png[28]) == (8, 0)
        self._size = {2: 3, 6: 4}[kind]
        while at < len(png):
            (length,) = struct.unpack_from(">I", png, at)
            if png[at + 4 : at + 8] == b"IDAT":
                packed += png[at + 8 : at + 8 + length]
            at += length + 12
        self._rows = self._unfilter(zlib.decompress(packed))

    def __getitem__(self, place: tuple[int, int]) -> Colour:
        x, y = place
        red, green, blue = self._rows[y][x * self._size :][:3]
        return red, green, blue

    def row(self, y: int) -> list[Colour]:
        """List one row's colours."""
        return [self[x, y] for x in range(self.width)]

    def columns_of(self, colour: Colour) -> list[int]:
        """List the columns in which a colour is seen, from the left."""
        return [
            x
            for x in range(self.width)
            if any(near(self[x, y], colour) for y in range(self.height))
        ]

    def _unfilter(self, raw: bytes) -> list[bytearray]:
        # The five filters of the PNG specification, section 9.
        size, stride = self._size, self.width * self._size
        rows, above = [], bytearray(stride)
        for y in range(self.height):
            kind, *given = raw[y * (stride + 1) : (y + 1) * (stride + 1)]
            row = bytearray(given)
            for i in range(stride):
                left = row[i - size] if i >= size else 0
                corner = above[i - size] if i >= size else 0
                guess = (0, left, above[i], (left + above[i]) // 2, 0)[kind]
                if kind == 4:
                    nearest = left + above[i] - corner
                    guess = min((left, above[i], corner), key=lambda each: abs(nearest - each))
                row[i] = (row[i] + guess) % 256
            rows.append(row)
            above = row
        return rows


@cache  # a picture has few colours and many pixels
def near(one: Colour, other: Colour) -> bool:
    """Tell whether two colours are the same, but for rounding."""
    return all(abs(a - b) <= 3 for a, b in zip(one, other, strict=True))


class Chromium:
    """One browser; every page is a tab of its own."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._numbers = count(1)
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    @classmethod
    @contextmanager
    def started(cls, program: str) -> Iterator[Self]:
        """Start one, and stop that one."""
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        with TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
            command = [
                *(sys.executable, "-c", _TRAMPOLINE, str(theirs_in), str(theirs_out)),
                *(program, *_QUIET, f"--user-data-dir={profile}", "about:blank"),
            ]
            with subprocess.Popen(
                command,
                pass_fds=(theirs_in, theirs_out),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as running:
                os.close(theirs_in)
                os.close(theirs_out)
                try:
                    yield cls(ours_in, ours_out)
                finally:
                    running.terminate()
                    try:
                        running.wait(_PATIENCE)
                    except subprocess.TimeoutExpired:
                        running.kill()
                    os.close(ours_in)
                    os.close(ours_out)

    def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send one command and return its result; what else comes is kept in events."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == number:
                assert "error" not in told, told
                result: dict[str, Any] = told["result"]
                return result
            self.events.append(told)

    def wait_for(self, method: str, session: str) -> None:
        """Read on until something has happened, if it has not yet."""
        while not any(
            told["method"] == method and told.get("sessionId") == session for told in self.events
        ):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], _PATIENCE)
            assert ready, "Chromium says nothing"
            got = os.read(self._read, 1 << 16)
            assert got, "Chromium has gone"
            self._rest += got
        message, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        return told

    def page(
        self, path: Path, *, width: int = 1000, deficiency: str = "none", **media: str
    ) -> Page:
        """Open a file; media are CSS media features, such as prefers_color_scheme="dark"."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            page.ask(f"{domain}.enable")
        page.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=800, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        features = [
            {"name": name.replace("_", "-"), "value": value} for name, value in media.items()
        ]
        page.ask("Emulation.setEmulatedMedia", features=features)
        page.ask("Emulation.setEmulatedVisionDeficiency", type=deficiency)
        page.ask("Page.navigate", url=path.as_uri())
        self.wait_for("Page.loadEventFired", session)
        return page


class Page:
    """One open page."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command to this page."""
        return self._browser.ask(method, self._session, **params)

    def run(self, script: str) -> Any:
        """Evaluate JavaScript, ours and not the page's."""
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def settle(self) -> None:
        """Wait until what has changed is drawn: two frames."""
        frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        self.ask("Runtime.evaluate", expression=frames, awaitPromise=True)

    def boxes(self, selector: str) -> list[Box]:
        """Say where all elements of a kind lie."""
        script = f"""[...document.querySelectorAll({json.dumps(selector)})].map(each => {{
            const box = each.getBoundingClientRect();
            return [box.x + scrollX, box.y + scrollY, box.width, box.height]
        }})"""
        return [Box(*box) for box in self.run(script)]

    def picture(self, box: Box | None = None) -> bytes:
        """Take a picture of a part of the page, or of all of it."""
        clip = {} if box is None else {"clip": {**box._asdict(), "scale": 1}}
        told = self.ask("Page.captureScreenshot", captureBeyondViewport=True, **clip)
        return base64.b64decode(told["data"])

    def complaints(self) -> list[str]:
        """List what the console was told: errors, warnings, refusals, logs."""
        methods = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        return [json.dumps(told["params"]) for told in self._mine() if told["method"] in methods]

    def requests(self) -> list[str]:
        """List the addresses that were asked for, the page's own among them."""
        return [
            told["params"]["request"]["url"]
            for told in self._mine()
            if told["method"] == "Network.requestWillBeSent"
        ]

    def names(self, role: str) -> list[str]:
        """List the accessible names of a role, in the page's order."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        return [
            node["name"]["value"]
            for node in nodes
            if not node["ignored"] and node["role"]["value"] == role
        ]

    def _mine(self) -> list[dict[str, Any]]:
        self.run("0")  # whatever was on its way has been read by now
        events = self._browser.events
        return [told for told in events if told.get("sessionId") == self._session]
