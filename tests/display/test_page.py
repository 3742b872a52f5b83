"""The page in its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from honcho_fallback.display import _page, html_of, write_page
from tests.helpers.records import EVERY_OUTCOME, WAITED

if TYPE_CHECKING:
    from pathlib import Path

    from honcho_fallback import CallRecord


def test_the_page_holds_figures_and_every_call(tmp_path: Path) -> None:
    """The style stands there once; what is drawn is what a notebook gets."""
    page = tmp_path / "calls.html"
    calls = write_page(iter([WAITED, *EVERY_OUTCOME.values()]), page)
    text = page.read_text("utf-8")
    assert len(calls.records) == 8
    assert text.count("<style>") == 1
    for record in calls.records:
        assert html_of(record).partition("</style>")[2] in text
    assert html_of(calls.summary).partition("</style>")[2] in text
    assert "class=many" not in text
    assert [each.name for each in tmp_path.iterdir()] == ["calls.html"]


def test_a_page_of_no_calls_says_so(tmp_path: Path) -> None:
    """It is a page still."""
    write_page([], tmp_path / "calls.html")
    assert "There are none." in (tmp_path / "calls.html").read_text("utf-8")


def test_a_page_of_many_calls_draws_what_is_in_view(tmp_path: Path) -> None:
    """Browsers are told so, or they would work on it for half a minute."""
    write_page([WAITED] * 201, tmp_path / "calls.html")
    assert "<main class=many>" in (tmp_path / "calls.html").read_text("utf-8")


def test_a_page_is_there_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What breaks in the middle leaves the page that was there, and no litter."""
    page = tmp_path / "calls.html"
    write_page([WAITED], page)
    before = page.read_text("utf-8")
    drawn: list[CallRecord] = []

    def break_down(record: CallRecord) -> str:
        if drawn:
            raise KeyboardInterrupt
        drawn.append(record)
        return "half"

    monkeypatch.setattr(_page, "unstyled", break_down)
    with pytest.raises(KeyboardInterrupt):
        write_page([WAITED] * 2, page)
    assert page.read_text("utf-8") == before
    assert [each.name for each in tmp_path.iterdir()] == ["calls.html"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """The file that it points to is replaced."""
    (tmp_path / "real.html").write_text("old")
    (tmp_path / "link.html").symlink_to("real.html")
    write_page([WAITED], tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink()
    assert "hf-bar" in (tmp_path / "real.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("where", "error"), [("none/calls.html", FileNotFoundError), (".", IsADirectoryError)]
)
def test_a_page_that_cannot_be_written_is_named(
    tmp_path: Path, where: str, error: type[OSError]
) -> None:
    """The error carries the path that was given."""
    with pytest.raises(error) as caught:
        write_page([WAITED], tmp_path / where)
    assert caught.value.filename == str((tmp_path / where).resolve())
    assert list(tmp_path.iterdir()) == []
