"""Every command that Hotspare tells people to type exists: a page at three in the morning must not name one that does not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from typer.core import TyperGroup
from typer.main import get_command

from workers.cli.app import app

TREE = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"\bhotspare ([a-z][a-z-]+)")


def words_of(file: Path) -> set[str]:
    """The words after `hotspare` in the strings of a file; what a docstring says is no instruction."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    texts = [one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and id(one) not in prose]
    return {word for text in texts if isinstance(text, str) for word in NAMED.findall(text)}


def test_every_command_in_our_words_exists() -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    known = set(group.commands)
    files = [file for folder in ("checks", "activities", "workflows", "workers") for file in (TREE / folder).rglob("*.py")]
    named = {word: file.relative_to(TREE) for file in files for word in words_of(file)}
    assert {"init", "status", "why"} <= named.keys()
    assert {word: str(file) for word, file in named.items() if word not in known} == {}
