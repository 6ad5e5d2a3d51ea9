"""Writes the settings down for people: the reference page, and the commented file that `hotspare init` begins with."""

from __future__ import annotations

import inspect
import json
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from workers.settings import Settings

PAGE_HEAD = """# Settings

One TOML file: `--config FILE`, else `$HOTSPARE_CONFIG`, else `./hotspare.toml`, else `/etc/hotspare/hotspare.toml`.
Unknown keys are errors that name the nearest right key. Relative paths are relative to the folder of the file.
Where Temporal is comes only from the `TEMPORAL_*` variables or the `temporal.toml` of the `temporal` command; AWS credentials
come only from the usual AWS variables and files. No secret belongs into this file.

This page is generated from the code: `python -m workers.settings_doc`.
"""


@dataclass(frozen=True)
class Entry:
    """One setting."""

    key: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Table:
    """One table of the file."""

    name: str
    meaning: str
    entries: tuple[Entry, ...]


def tables() -> list[Table]:
    """Every table of the settings file with its settings, in the order of the file."""
    found: list[Table] = []
    for name, field in Settings.model_fields.items():
        if not field.exclude and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += _tables(name, field.annotation)
    return found


def page() -> str:
    """The reference page in Markdown."""
    parts = [PAGE_HEAD]
    for table in tables():
        parts.append(f"## [{table.name}]\n\n{table.meaning}\n")
        parts.append("| key | type | default | meaning, unit, source |\n|---|---|---|---|")
        parts += [f"| `{e.key}` | {_cell(e.type)} | {_code(e.default)} | {_cell(e.meaning)} |" for e in table.entries]
        parts.append("")
    return "\n".join(parts)


def commented_file(given: dict[str, dict[str, Any]]) -> str:
    """A settings file in which everything but what is `given` is a comment with its default."""
    lines = ["# Settings of Hotspare. What is commented out shows the default. Reference: docs/settings.md", ""]
    for table in tables():
        lines += [f"# {line}" for line in _wrapped(table.meaning)]
        values = given.get(table.name, {})
        lines.append(f"[{table.name}]")
        for entry in table.entries:
            lines += [f"#   {line}" for line in _wrapped(entry.meaning)]
            value = values.get(entry.key)
            lines.append(
                f"{_key(entry.key)} = {toml_value(value)}" if value is not None else f"# {_key(entry.key)} = {entry.default}"
            )
        lines.append("")
    return "\n".join(lines)


def _tables(name: str, model: type[BaseModel]) -> Iterator[Table]:
    entries = []
    inner = []
    for key, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            inner.append((f"{name}.{key}", field.annotation))
        else:
            entries.append(Entry(key, _type_name(field.annotation), _default(field), _sentence(field.description or "")))
    yield Table(name, " ".join(inspect.cleandoc(model.__doc__ or "").split()), tuple(entries))
    for inner_name, inner_model in inner:
        yield from _tables(inner_name, inner_model)


def _default(field: FieldInfo) -> str:
    return "" if field.is_required() else toml_value(field.get_default(call_default_factory=True))


def toml_value(value: Any) -> str:
    """Write a value as TOML."""
    if value is None:
        return '""'  # TOML has no word for nothing; who reads a file that need not be there takes this for it
    if isinstance(value, Enum):
        return json.dumps(value.value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) and not value.is_integer() else str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(
                f"{_key(str(key.value if isinstance(key, Enum) else key))} = {toml_value(item)}" for key, item in value.items()
            )
            + "}"
        )
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")  # fine in JSON, not in TOML


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)


def _type_name(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(str(word) for word in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_type_name(arg) for arg in inner if arg is not type(None))
    if origin is list:
        return f"list of {_type_name(inner[0])}"
    if origin is dict:
        return f"table of {_type_name(inner[1])}"
    return _simple_type(annotation)


def _simple_type(annotation: Any) -> str:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(str(member.value) for member in annotation) if len(annotation) <= 4 else annotation.__name__.lower()
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        keys = ", ".join(annotation.model_fields)
        return f"table ({keys})"
    if annotation is Path:
        return "path"
    return {str: "text", int: "integer", float: "number", bool: "true or false"}.get(annotation, str(annotation))


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text.endswith((".", ")")) else text + "."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(text: str) -> str:
    return f"`{_cell(text)}`" if text else "needed"


def _wrapped(text: str, width: int = 110) -> list[str]:
    return textwrap.wrap(text, width)
