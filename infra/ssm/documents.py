"""Makes the documents of Run Command from the table of commands: `python -m infra.ssm.documents` writes them beside this file.

One takes every command of the table, the other only those that look, so that who may only look cannot send more. Neither has a
parameter that a shell could read anything into. Sources: Systems Manager User Guide, "Data elements and parameters"
(allowedValues, allowedPattern) and "Command document plugin reference" (aws:runShellScript).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from checks.node_commands import NODE_COMMANDS

HOTSPARE = "/opt/hotspare/bin/python"
"""The Python of the environment in which Hotspare is installed on the node (docs/access.md)."""

EXECUTION_S = 3600
"""Seconds after which the agent ends a command. Hotspare default: each has a deadline of its own, and none that is waited for is
near this one."""

NODE, LOOK = "hotspare-node", "hotspare-node-look"
"""Files here, and the default names of the documents."""

ACTIONS = {NODE: ("run", "start", "poll", "kill"), LOOK: ("run",)}


def document(name: str) -> dict[str, Any]:
    """Return the content of a document."""
    checks = [check for check, command in NODE_COMMANDS.items() if name == NODE or not command.changes]
    # The words are quoted, and none of them can hold a quote.
    line = f'exec "${{HOTSPARE_HOST_ROOT:-}}{HOTSPARE}" -m hotspare.checks.on_node'
    words = " ".join(f"'{{{{ {parameter} }}}}'" for parameter in ("Action", "Check", "RunId", "Options"))
    does = "Runs a command of Hotspare's table" if name == NODE else "Looks at a node with a command of Hotspare's table"
    return {
        "schemaVersion": "2.2",
        "description": f"{does}, by its name. Nothing else can be run with it.",
        "parameters": {
            "Action": _one_of("What is done with the run.", ACTIONS[name]),
            "Check": _one_of("Name of the command.", checks),
            "RunId": _like("The same id is the same run.", r"^[A-Za-z0-9._-]{1,80}$"),
            "Options": _like("Packed by the sender; the node checks each word.", r"^[A-Za-z0-9_-]+$"),
        },
        "mainSteps": [
            {
                "action": "aws:runShellScript",
                "name": "hotspare",
                "precondition": {"StringEquals": ["platformType", "Linux"]},
                "inputs": {"timeoutSeconds": str(EXECUTION_S), "runCommand": [f"{line} {words}"]},
            }
        ],
    }


def _one_of(description: str, values: Any) -> dict[str, Any]:
    return {"type": "String", "description": description, "allowedValues": list(values)}


def _like(description: str, pattern: str) -> dict[str, Any]:
    return {"type": "String", "description": description, "allowedPattern": pattern}


def text_of(name: str) -> str:
    """The document as its file has it."""
    return json.dumps(document(name), indent=2) + "\n"


def file_of(name: str) -> Path:
    """Where a document is kept."""
    return Path(__file__).with_name(f"{name}.json")


if __name__ == "__main__":
    for one in ACTIONS:
        file_of(one).write_text(text_of(one))
