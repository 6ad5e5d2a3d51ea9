"""The documents of Run Command: made from the table, of the form that Systems Manager takes, and closed to a shell."""

from __future__ import annotations

import json
import re

import pytest

from checks.node_commands import NODE_COMMANDS
from infra.ssm.documents import ACTIONS, LOOK, NODE, document, file_of, text_of

SHELL = set("'\"`$\\;&|<>(){}[]*?!~# \t\n")
LARGEST = 64 * 1024
"""Bytes of a document at most. Source: Systems Manager quotas."""


@pytest.mark.parametrize("name", ACTIONS)
def test_the_files_are_those_of_the_table(name: str) -> None:
    assert file_of(name).read_text() == text_of(name), "write them anew: python -m infra.ssm.documents"
    assert len(text_of(name)) < LARGEST


@pytest.mark.parametrize("name", ACTIONS)
def test_no_parameter_can_hold_what_a_shell_reads(name: str) -> None:
    for parameter, rule in document(name)["parameters"].items():
        allowed = rule.get("allowedValues")
        if allowed is not None:
            assert not SHELL & set("".join(allowed)), parameter
        else:
            assert not [letter for letter in SHELL if re.fullmatch(rule["allowedPattern"], f"a{letter}a")], parameter


@pytest.mark.parametrize("name", ACTIONS)
def test_every_parameter_stands_in_quotes_in_the_one_line_that_is_run(name: str) -> None:
    made = document(name)
    (step,) = made["mainSteps"]
    (line,) = step["inputs"]["runCommand"]
    assert re.findall(r"'\{\{ (\w+) \}\}'", line) == list(made["parameters"])
    assert line.count("{{") == len(made["parameters"])
    assert json.loads(text_of(name)) == made


def test_who_looks_can_name_nothing_that_changes_a_node() -> None:
    looks, all_names = (set(document(name)["parameters"]["Check"]["allowedValues"]) for name in (LOOK, NODE))
    assert all_names == set(NODE_COMMANDS)
    assert all_names - looks == {name for name, command in NODE_COMMANDS.items() if command.changes}
    assert all_names - looks >= {"load-test", "gpu-reset", "reboot"}
    assert ACTIONS[LOOK] == ("run",)
