"""What was wrong in a file, where, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic import ValidationError


def explain(error: ValidationError, source: str, model: type[BaseModel]) -> str:
    """Tell each mistake on a line of its own."""
    lines: list[str] = []
    details = error.errors(include_url=False, include_input=False)
    deep = {detail["loc"][:1] for detail in details if len(detail["loc"]) > 1}
    for detail in details:
        if detail["type"] == "too_short" and detail["loc"] in deep:
            continue  # pydantic counts an element with a mistake as none
        path, known = _walk(detail["loc"], model)
        where = f"{source}: {path}" if path else source
        lines.append(f"{where}: {_said(detail, known)}")
    return "\n".join(lines)


def _said(detail: Any, known: list[str]) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return f"no such key; choose from {', '.join(known)}"
    if kind == "missing":
        return "is missing; add it"
    if kind == "union_tag_invalid":
        return f"no such kind {context['tag']!r}; choose from {context['expected_tags']}"
    if kind == "union_tag_not_found":
        return "kind is missing; say which kind it is"
    if kind == "value_error":
        return str(context["error"])
    return str(detail["msg"])


def _walk(location: tuple[int | str, ...], model: type[BaseModel]) -> tuple[str, list[str]]:
    """Follow a location into the models: its path in the file, and the keys known there."""
    path = ""
    current: type[BaseModel] | None = model
    choices: dict[str, type[BaseModel]] = {}
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step in choices:  # pydantic names the member of a union; the file does not
            current, choices = choices[step], {}
        else:
            path += f".{step}" if path else step
            if current is not None and step in current.model_fields:
                found = list(_models(current.model_fields[step].annotation))
                choices = {_tag(one): one for one in found if _tag(one)}
                current = found[0] if len(found) == 1 else None
    return path, [] if current is None else list(current.model_fields)


def _tag(model: type[BaseModel]) -> str:
    field = model.model_fields.get("kind")
    return str(get_args(field.annotation)[0]) if field is not None else ""


def _models(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
