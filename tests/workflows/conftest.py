"""Fixtures of the workflow tier."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.workflows.healing import Healing, healing


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Healing]:
    """Four nodes with a job, and one spare."""
    async with healing(tmp_path) as one:
        yield one


@pytest.fixture
async def no_spares(tmp_path: Path) -> AsyncIterator[Healing]:
    """Four nodes with a job, and no spare."""
    async with healing(tmp_path, spares=0) as one:
        yield one
