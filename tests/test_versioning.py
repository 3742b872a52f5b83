"""What docs/versioning.md promises is seen in review before it changes."""

from __future__ import annotations

from tests import public_api


def test_the_public_names_are_those_of_the_file() -> None:
    """A name, a parameter, a default or an option that changes is a change of this file, too."""
    assert public_api.FILE.read_text("utf-8") == public_api.written(), "run make api"


def test_every_option_and_every_package_is_in_the_file() -> None:
    """The file is made from the reference, and would not miss what that leaves out."""
    lines = public_api.FILE.read_text("utf-8").splitlines()
    packages = {path.name for path in (public_api.ROOT / "adapters").glob("honcho_fallback_*")}
    assert packages <= {*lines}
    for option in ("deadline", "replay", "only_models"):
        assert any(line.startswith(f"    .{option}: ") for line in lines)
