"""What was seen of the training job while a story went on."""

from __future__ import annotations

from dataclasses import dataclass, field

from workers.demo.ending import JobView


@dataclass
class JobWatch:
    """What was seen of the job during a story: when it stopped and at which step, and from which checkpoint it came back."""

    before: JobView
    stopped_at: int | None = None
    resumed_from: int | None = None
    stopped_s: float | None = None
    again_s: float | None = None
    last: JobView = field(init=False)

    def __post_init__(self) -> None:
        self.last = self.before

    def see(self, job: JobView, elapsed_s: float) -> None:
        """Take in one look."""
        if job.state != "RUNNING" and self.stopped_at is None:
            self.stopped_at, self.stopped_s = max(self.last.step, job.step), elapsed_s
        if job.resumes > self.last.resumes:
            self.resumed_from = job.checkpoint_step
        if self.again_s is None and self.trains_again(job):
            self.again_s = elapsed_s
        self.last = job

    def trains_again(self, job: JobView) -> bool:
        """Whether the job has gone past the checkpoint from which it came back."""
        return job.state == "RUNNING" and self.resumed_from is not None and job.step > self.resumed_from
