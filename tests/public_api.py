"""Write every public name with its signature: ``python -m tests.public_api`` is ``make api``.

Sources are read, not imported, so that no framework has to be installed.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "public_api.txt"
PAGE = ROOT / "docs" / "reference.md"
PLACES = [ROOT, ROOT / "adapters"]


def modules() -> list[str]:
    """Return the modules that the reference names."""
    lines = PAGE.read_text("utf-8").splitlines()
    return sorted(line.removeprefix("::: ") for line in lines if line.startswith("::: "))


def written() -> str:
    """Return the file's text."""
    lines = ["# What is public: docs/versioning.md. Written by `make api`."]
    packages: dict[str, griffe.Object | griffe.Alias] = {}
    for name in modules():
        root, _, inside = name.partition(".")
        if root not in packages:
            packages[root] = griffe.load(root, search_paths=PLACES, resolve_aliases=True)
        module = packages[root][inside] if inside else packages[root]
        lines += ["", name]
        for public in sorted(map(str, module.exports or ())):
            lines += [f"  {line}" for line in described(module[public])]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines += ["", "extras", *(f"  {extra}" for extra in sorted(project["optional-dependencies"]))]
    return "\n".join(lines) + "\n"


def described(shown: griffe.Object | griffe.Alias) -> Iterator[str]:
    """Yield a name's signature, then those of a class's members."""
    value = shown.final_target if isinstance(shown, griffe.Alias) else shown
    name = shown.name
    if isinstance(value, griffe.Function):
        yield signature(name, value)
    elif isinstance(value, griffe.Class):
        bases = ", ".join(map(str, value.bases))
        yield f"class {name}({bases})" if bases else f"class {name}"
        for member in sorted(value.all_members.values(), key=lambda one: one.name):
            # Members that another distribution's class brings are its own promise.
            is_ours = member.path.startswith("honcho_fallback") and not member.is_private
            if member.name == "__init__" or (is_ours and not member.name.startswith("_")):
                yield from (f"  .{line}" for line in described(member))
    elif isinstance(value, griffe.Attribute):
        annotation = f": {value.annotation}" if value.annotation is not None else ""
        # What is computed when an object is made is no promise.
        computed = "class-attribute" not in value.labels and "instance-attribute" in value.labels
        yield f"{name}{annotation}{'' if computed else default(value.value)}"
    else:
        yield name


def signature(name: str, function: griffe.Function) -> str:
    """Return how a function is called."""
    kinds, parts = griffe.ParameterKind, []
    star = False
    for one in function.parameters:
        if one.name in {"self", "cls"}:
            continue
        if one.kind is kinds.keyword_only and not star:
            parts.append("*")
            star = True
        star = star or one.kind is kinds.var_positional
        mark = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(one.kind, "")
        shown = "" if mark else default(one.default)
        parts.append(f"{mark}{one.name}: {one.annotation}{shown}")
        if one.kind is kinds.positional_only:
            parts.append("/")
    prefix = "async " if "async" in function.labels else ""
    return f"{prefix}{name}({', '.join(parts)}) -> {function.returns}"


def default(value: object) -> str:
    """Return a default, if there is one that is short enough to read."""
    text = "" if value is None else " ".join(str(value).split())
    return f" = {text}" if text and len(text) < 80 else " = ..." if text else ""


if __name__ == "__main__":
    FILE.write_text(written(), "utf-8")
