"""What proves that a job trains: its step counter rises while its ranks run."""

from __future__ import annotations

from activities.jobs.protocol import JobState, JobStatus


class TrainingProof:
    """Follows looks at one run of a job until its counter has risen between two of them, past `beyond_step`.

    One look proves nothing: until its first step a new run shows the counter of the run before, which stood past the checkpoint.
    """

    def __init__(self, beyond_step: int) -> None:
        self._beyond_step = beyond_step
        self._before: int | None = None

    def complete(self, status: JobStatus, *, counts: bool) -> bool:
        """Take in a look, and say whether the job is proved to train. A look that does not count begins the proof anew."""
        if not counts or status.state is not JobState.RUNNING:
            self._before = None
            return False
        before, step = self._before, status.step
        if step is not None:
            self._before = step
        return before is not None and step is not None and step > max(before, self._beyond_step)
