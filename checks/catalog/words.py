"""How people say what the catalog says: actions, what becomes of the job, how a decoded line is read."""

from __future__ import annotations

from checks.model import Action

ACTION_WORDS = {
    Action.NONE: "nothing",
    Action.RESTART_JOB: "restart the job",
    Action.RESET_GPU: "reset the GPU",
    Action.REBOOT_NODE: "reboot the node",
    Action.POWER_CYCLE: "stop and start the instance (power cycle)",
    Action.REPLACE_NODE: "replace the node",
    Action.RUN_DIAGNOSTICS: "run diagnostics",
    Action.CONTACT_SUPPORT: "ask a person, who may contact support",
}

JOB_WORDS = {
    "no": "goes on",
    "at_boundary": "goes on to its next checkpoint or end",
    "job_dies_anyway": "has failed already",
    "yes": "must be stopped now",
    "yes if Fatal": "must be stopped now if the line says Fatal",
    "depends": "depends on what the line says",
    "": "not published",
}

LINE_DECIDES = {
    48: "DRAM if the line says framebuffer or an XID 171 is beside it, SRAM with a 172 beside it, else taken as SRAM",
    64: '"already pending" is harmless (as 63); every other text means that no spare row is left',
    74: "the seven registers in the line, see the table",
    94: "RST: Yes asks for a reset now, D-RST: Yes after a drain, both No for a new start of the job alone",
    95: "RST: Yes asks for a reset now, D-RST: Yes after a drain, both No for a new start of the job alone",
    154: "the number after to, not the words beside it: they changed between driver branches",
    **dict.fromkeys(range(144, 151), "unit and registers, see the table; else Fatal asks for a reset, Nonfatal is counted"),
}
"""How the line of a decoded code is read."""


def in_words(text: str) -> str:
    """Write the actions in a text as people say them."""
    for action, words in ACTION_WORDS.items():
        if "_" in action.value:
            text = text.replace(action.value.lower(), words)
    return text
