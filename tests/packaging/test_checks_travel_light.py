"""checks/ runs on bare nodes: it imports the standard library and itself, and NVML's binding in one module."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

CHECKS = Path(__file__).resolve().parents[2] / "checks"


def imported(module: Path) -> Iterator[str]:
    """Top-level names that `module` imports, anywhere in it."""
    for node in ast.walk(ast.parse(module.read_text(), filename=str(module))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "checks" if node.level else (node.module or "").split(".")[0]


def test_checks_import_only_the_standard_library_and_nvml_in_one_module() -> None:
    foreign = {
        (module.relative_to(CHECKS).as_posix(), name)
        for module in CHECKS.rglob("*.py")
        for name in imported(module)
        if name not in sys.stdlib_module_names and name != "checks"
    }
    assert foreign <= {("probes/nvml.py", "pynvml")}
