"""docs/capacity.md names tests that there are, and every case that it promises has one in the lab and one besides."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CELL = re.compile(r"(?:(?P<folder>\w+)/)?(?P<module>test_\w+): (?P<names>`\w+`(?:, `\w+`)*)")


def cases() -> list[list[str]]:
    """The rows of the first table, without its head."""
    text = (ROOT / "docs" / "capacity.md").read_text().split("## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def named(cell: str, folder: str) -> list[tuple[Path, str]]:
    """The tests that a cell names, with their files."""
    found = []
    for match in CELL.finditer(cell):
        file = ROOT / "tests" / (match["folder"] or folder) / f"{match['module']}.py"
        found += [(file, name) for name in re.findall(r"\w+", match["names"])]
    return found


def test_every_test_that_the_page_names_is_there() -> None:
    rows = cases()
    assert len(rows) >= 14
    for case, _, in_lab, besides in rows:
        tests = [*named(in_lab, "lab"), *named(besides, "workflows")]
        assert in_lab == "the same" or named(in_lab, "lab"), case
        assert named(besides, "workflows"), case
        for file, name in tests:
            assert re.search(rf"^(?:async )?def test_{name}\(", file.read_text(), re.MULTILINE), f"{case}: {file.name}: {name}"
