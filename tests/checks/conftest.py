"""A node that the checks look at, and a watch over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.node import TestNode
from tests.checks.watching import Watch


@pytest.fixture
def node(tmp_path: Path) -> TestNode:
    return TestNode(tmp_path)


@pytest.fixture
def watch(node: TestNode) -> Watch:
    return Watch(node)
