"""Permissions for host memory in DynamoDB, by worker role: `python -m infra.iam.host_memory` writes memory/ROLE.json.

They are policies beside those of the table in `infra.iam.table`, needed only where store.memory is "dynamodb": put the table's
name where they say TABLE. Worker roles never list the table; people do, with `hotspare ledger`, `replay`, `status` and `doctor`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TABLE = "TABLE"
"""Stands for the table's name."""

GET, BATCH, PUT, DELETE = "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:DeleteItem"
QUERY = "dynamodb:Query"

EFFECT = (GET, PUT, DELETE)
"""What an effect asks of host memory: its intent noted, its age read, taken back where the provider refused the call."""

LOOK = (GET, BATCH, PUT)
"""What a look at a node does: the past of host and GPUs is read, what is new is written."""

WATCH_FOR_WEDGED = "watch_for_wedged"
"""Not an activity: every worker process looks for workflows that are stuck on their own code, and pages once."""
READ_LEDGER = "read_ledger"
"""Not an activity: what people do with the ledger."""

PERMISSIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "control": {WATCH_FOR_WEDGED: (GET, PUT)},
    "aws": {
        "brief": (GET,),
        "list_nodes": (GET, BATCH),
        "compare_fleet": (GET, BATCH),
        "differences_told": (PUT,),
        "close_host_incident": LOOK,
        "note_spare_test": (GET, PUT),
        "note_clean_runs": (BATCH, PUT),
        "load_freezes": (GET,),
        "save_freezes": (PUT,),
        "reboot_node": EFFECT,
        "soft_reboot_node": (GET, PUT),
        "power_cycle_node": EFFECT,
        "start_node": EFFECT,
        "terminate_node": EFFECT,
        "tag_node": EFFECT,
    },
    "ssh": {
        "examine": LOOK,
        "deep_test": LOOK,
        "group_test": (BATCH,),
        "reset_gpu": (GET, PUT),
        "collect_evidence": (GET,),
        "find_traces": (GET,),
    },
    "people": {READ_LEDGER: (GET, BATCH, PUT, DELETE, QUERY)},
}
"""Role -> activity -> actions on the table. Roles that are not named ask nothing of it; `observe` stands in for all workers."""


def actions_of(role: str) -> tuple[str, ...]:
    """Every action that a role needs, sorted."""
    roles = [name for name in PERMISSIONS if name != "people"] if role == "observe" else [role]
    return tuple(sorted({action for name in roles for actions in PERMISSIONS[name].values() for action in actions}))


def policy_of(role: str) -> dict[str, Any]:
    """Return the policy of a role on the table. The index is for those who list."""
    table = f"arn:*:dynamodb:*:*:table/{TABLE}"
    listed = {"Resource": [table, f"{table}/index/*"]} if QUERY in actions_of(role) else {"Resource": [table]}
    statement = {"Sid": "HostMemory", "Effect": "Allow", "Action": list(actions_of(role)), **listed}
    return {"Version": "2012-10-17", "Statement": [statement]}


ROLES = (*PERMISSIONS, "observe")


def text_of(role: str) -> str:
    """The policy as its file has it."""
    return json.dumps(policy_of(role), indent=2) + "\n"


def file_of(role: str) -> Path:
    """Where the policy of a role is kept."""
    return Path(__file__).with_name("memory") / f"{role}.json"


if __name__ == "__main__":
    for name in ROLES:
        file_of(name).parent.mkdir(exist_ok=True)
        file_of(name).write_text(text_of(name))
