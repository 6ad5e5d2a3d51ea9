"""Two hundred faults at once on four hundred nodes: `tests/workflows/test_storm_of_faults.py` at full size; prints how long."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.workflows.test_storm_of_faults import all_heal


@pytest.mark.timeout(3600)
async def test_two_hundred_faults_on_four_hundred_nodes(tmp_path: Path) -> None:
    began = time.monotonic()
    await all_heal(tmp_path, nodes=400, faults=200)
    print(f"\n200 faults on 400 nodes, six out at a time: all at their end after {time.monotonic() - began:.0f} s")
