"""One page that needs nothing else: the figures, then every call."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from honcho_fallback.display._calls import Calls
from honcho_fallback.display._html import STYLE, unstyled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from honcho_fallback import CallRecord

_STYLE = """
:root { color-scheme: light dark; background: Canvas; color: CanvasText }
body { font: 15px/1.4 system-ui, sans-serif; margin: 1.5em auto; max-width: 80em; padding: 0 1em }
h1 { font-size: 1.4em } h2 { font-size: 1.15em }
@media screen { .many .hf { contain-intrinsic-size: auto 8em; content-visibility: auto } }
"""

_MANY = 200  # from here on a browser had better draw only what is in view

# The policy says once more that nothing is fetched and nothing runs.
_HEAD = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>honcho_fallback: calls</title>
<style>{STYLE}{_STYLE}</style>
</head>
<body>
"""


def write_page(records: Iterable[CallRecord], path: str | Path) -> Calls:
    """Write one self-contained page: a table of figures, then every call's time line.

    The page is there as a whole or not at all; one that was there before is replaced.

    Args:
        records: The calls.
        path: Where to.

    Returns:
        The calls on it.

    Raises:
        OSError: It cannot be written.
    """
    calls, path = Calls(records), Path(path).resolve()
    unfinished = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        with unfinished.open("x", encoding="utf-8", newline="\n") as page:
            page.writelines(_pieces(calls))
        unfinished.replace(path)
    except OSError as error:
        # Under the name that the caller knows.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return calls


def _pieces(calls: Calls) -> Iterator[str]:
    yield _HEAD
    yield f"<main{' class=many' if len(calls.records) > _MANY else ''}>\n<h1>Calls</h1>\n"
    yield unstyled(calls.summary)
    yield "\n<h2>One by one</h2>\n" if calls.records else "\n<p>There are none.</p>\n"
    yield from (f"{unstyled(record)}\n" for record in calls.records)
    yield "</main>\n</body>\n</html>\n"
