"""The quarantine file on a real file system, written by the real shell text over SSH."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from activities.clients.fake_fleet import FakeFleet
from activities.clients.ssh_paramiko import SshAccessTo
from activities.errors import CommandFailed
from activities.quarantine import QUARANTINE_DIR, HeadFileMarks, Mark, QuarantineMarks
from activities.settings_access import AccessSettings
from tests.activities.loopback_node import LoopbackNode
from tests.activities.test_host_memory import NOON

OURS = Mark(owner="incident/lab/i-1", reason='it\'s "quoted", $HOME; and `more`', since=NOON)


@pytest.fixture
def marks(loopback: LoopbackNode, fleet: FakeFleet) -> Iterator[QuarantineMarks]:
    """Marks whose head node is the loopback node."""
    access_to = SshAccessTo(AccessSettings(ssh_config=loopback.configuration))
    yield QuarantineMarks(fleet.ec2, HeadFileMarks("head", lambda node: access_to(loopback.node), fleet.inventory))
    access_to.close()


def test_the_file_is_written_read_and_removed(loopback: LoopbackNode, fleet: FakeFleet, marks: QuarantineMarks) -> None:
    node = fleet.node("node-1")
    assert marks.mark(node) is None
    assert marks.owners([node]) == {}
    marks.write_mark(node, OURS)
    assert marks.mark(node) == OURS
    folder = loopback.root / QUARANTINE_DIR.lstrip("/")
    assert os.listdir(folder) == ["node-1"]
    assert marks.owners([node, fleet.node("node-2")]) == {"node-1": OURS.owner}
    marks.remove_mark(node)
    marks.remove_mark(node)
    assert os.listdir(folder) == []


def test_who_came_first_keeps_the_file(fleet: FakeFleet, marks: QuarantineMarks) -> None:
    node = fleet.node("node-1")
    marks.write_mark(node, OURS)
    marks.write_mark(node, OURS.model_copy(update={"owner": "incident/lab/other"}))
    assert marks.mark(node) == OURS


def test_a_folder_that_cannot_be_written_is_an_error_with_the_setting_that_helps(
    loopback: LoopbackNode, fleet: FakeFleet, marks: QuarantineMarks
) -> None:
    (loopback.root / "etc").write_text("a file where the folder should be")
    with pytest.raises(CommandFailed, match="sudo = true"):
        marks.write_mark(fleet.node("node-1"), OURS)
