"""What a page tells a person to type is there to be typed."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer.main

from activities.clients.fake_machine import Cure, FakeFault
from checks.model import Action
from tests.workflows.healing import Healing, healing
from workers.cli.app import app
from workflows.decisions.settings import Mode, PolicySettings
from workflows.messages import Word

COMMANDS = getattr(typer.main.get_command(app), "commands")  # noqa: B009  (a group has them, the stubs do not say which class it is)


async def test_every_command_of_every_page_of_a_lost_node_and_its_held_job_exists(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.NEVER))
    await (await no_spares.report("node-2", xid=79)).result()
    pages = fleet.pages
    assert len(pages) > 1
    for page in pages:
        assert page.next_commands, page.title
        for command in page.next_commands:
            program, name, *arguments = shlex.split(command, comments=True)
            assert program == "hotspare", command
            context = COMMANDS[name].make_context(name, arguments)
            assert context.params, command
    [held] = [page for page in pages if "stays held" in page.title]
    assert held.next_commands == ["hotspare status", "hotspare why node-2", "hotspare burn-in node-1 node-2 node-3 node-4"]


async def test_a_dead_pager_holds_up_no_approved_reboot(tmp_path: Path) -> None:
    policy = PolicySettings(mode=Mode.ACT, mode_by_rung={Action.REBOOT_NODE: Mode.APPROVE})
    async with healing(tmp_path, spares=0, policy=policy) as cluster:
        fleet = cluster.fleet
        fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
        paging = fleet.hold("page")
        handle = await cluster.report("node-2", xid=79)
        await paging.reached()
        await handle.execute_update("approve", Word(by="ann"))
        await cluster.told(handle, "back in service")
        assert fleet.count("reboot", "node-2") == 1
        paging.release()
        assert (await handle.result()).outcome == "resolved"
