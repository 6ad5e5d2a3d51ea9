"""What every tier of tests shares: repeatable property tests, and an end of the test process that cannot crash."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

# What a command prints into a file does not depend on how wide the terminal of the tests is; pytest-xdist hands that on.
os.environ.pop("COLUMNS", None)

# The same examples on every machine and in every run, however slow the machine is.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci")

_EXIT_STATUS = pytest.StashKey[int]()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remember how the run ended, for `pytest_unconfigure`."""
    session.config.stash[_EXIT_STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End at once where the Temporal SDK was used: its native threads crash some interpreters on their way out, after the
    summary was printed, and turn a green run into a failed one (temporalio/sdk-python#300)."""
    status = config.stash.get(_EXIT_STATUS, None)
    if status is None or "temporalio.bridge.temporal_sdk_bridge" not in sys.modules:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
