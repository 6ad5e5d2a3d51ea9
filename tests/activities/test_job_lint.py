"""The linter of jobs: each reason why one will not come back by itself is told with the setting that mends it."""

from __future__ import annotations

import pytest

from activities.jobs.lint import JobShape, Torchrun, Trap, budget_warnings, torchrun_in, warnings_of


def shape(**changes: object) -> JobShape:
    given: dict[str, object] = {"controller": "JobSet train", "restarts_allowed": 10, "restart_setting": "spec.x=10", **changes}
    return JobShape(**given)  # type: ignore[arg-type]


def test_a_job_that_comes_back_is_not_warned_of() -> None:
    assert warnings_of(shape()) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"restarts_allowed": 0}, ("will not come back by itself", "spec.x=10")),
        ({"shows_progress": False}, ("no step counter", "[job] progress")),
        ({"traps": (Trap("a lost node ends it", "set Ignore"),)}, ("a lost node ends it", "set Ignore")),
        ({"command": ["torchrun", "--max-restarts=3", "train.py"]}, ("do not meet again", "--rdzv-backend=c10d")),
    ],
    ids=["no restart", "no counter", "trap", "static rendezvous"],
)
def test_each_reason_is_told_with_what_to_set(changes: dict[str, object], words: tuple[str, ...]) -> None:
    [said] = warnings_of(shape(**changes))
    assert all(word in said for word in words)


def test_a_torchrun_without_restarts_is_told_only_where_nobody_else_restarts_the_job() -> None:
    command = ["torchrun", "--nnodes=4", "train.py"]
    assert warnings_of(shape(command=command)) == []
    assert any("--max-restarts" in words for words in warnings_of(shape(command=command, restarts_allowed=0)))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["python", "train.py"], None),
        (["/opt/conda/bin/torchrun", "--max-restarts", "3", "train.py"], Torchrun(3)),
        (["bash", "-c", "exec torchrun --max_restarts=2 --rdzv_backend=c10d train.py"], Torchrun(2, "c10d")),
        (["python", "-m", "torch.distributed.run", "train.py"], Torchrun()),
    ],
    ids=["none", "by path", "in a shell", "as a module"],
)
def test_torchrun_is_read_however_it_is_written(command: list[str], expected: Torchrun | None) -> None:
    assert torchrun_in(command) == expected


@pytest.mark.parametrize(("left", "told"), [(None, False), (5, False), (2, True), (0, True)])
def test_a_budget_is_told_before_it_is_used_up(left: int | None, told: bool) -> None:
    assert bool(budget_warnings(shape(), left, warn_at=2)) is told
