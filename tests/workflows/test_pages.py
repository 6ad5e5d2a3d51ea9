"""What a page tells a person to type is there to be typed."""

from __future__ import annotations

import shlex

import typer.main

from activities.clients.fake_machine import Cure, FakeFault
from tests.workflows.healing import Healing
from workers.cli.app import app

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
