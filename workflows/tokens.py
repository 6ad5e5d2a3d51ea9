"""Names for effects and requests that survive retries, worker deaths and a reset from the UI.

A reset changes the run id and the random ids and runs steps again; the original run id and the step number stay.
"""

from __future__ import annotations

from temporalio import workflow


class Tokens:
    """Counts the steps of one workflow run and names each."""

    def __init__(self) -> None:
        info = workflow.info()
        self.run = f"{info.workflow_id}@{info.original_execution_run_id}"
        self._count = 0

    def next(self) -> str:
        """Return the name of the next effect or request."""
        self._count += 1
        return f"{self.run}#{self._count}"

    def next_name(self) -> str:
        """Return the next name in characters that a folder on a node, or a workflow id, may have."""
        return "".join(sign if sign.isalnum() else "-" for sign in self.next())
