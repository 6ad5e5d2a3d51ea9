"""The whole loop over Run Command: the node's own agent reports, a document of fixed commands checks, and nobody logs in."""

from __future__ import annotations

import io
import os
from pathlib import Path
from unittest import mock

from rich.console import Console

from infra.lab.fleet import HEAD
from workers.demo.play import play_one
from workers.demo.screen import Screen
from workers.demo.stage import set_stage
from workers.demo.stories import Setting, choose

BY_RUN_COMMAND = Setting(access="ssm")


async def test_xid_79_is_healed_and_no_command_goes_over_ssh(tmp_path: Path) -> None:
    shown = io.StringIO()
    screen = Screen(Console(file=shown))
    with mock.patch.dict(os.environ):  # what the lab sets is taken back
        async with set_stage(tmp_path / "lab", screen, BY_RUN_COMMAND) as stage:
            (story,) = choose(["79"], BY_RUN_COMMAND)
            assert await play_one(story, stage, screen), shown.getvalue() + stage.worker.tail()
            lab = stage.lab
            logins = {name: lab.ssh.count(name, "") for name in lab.nodes if name != HEAD}
            assert logins == dict.fromkeys(logins, 0)
            sent = lab.run_command
            assert sent.count("node-2", "probe") > 1
            assert sent.count("node-2", "kernel-log") >= 1  # the evidence, before anything was done
            assert sent.count("node-2", "load-test") > 1  # the re-test, started and looked at
            assert sent.count("node-2", "reboot") == 0  # the restart was EC2's
            assert lab.endpoint.count("RebootInstances", lab.nodes["node-2"].instance_id) == 1
