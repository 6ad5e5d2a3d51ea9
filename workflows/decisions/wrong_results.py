"""What a job may be resumed from after a node that it trained on computed wrong: only what a person chooses. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def trained_wrong(corrupt: Sequence[str], trained_on: Collection[str], evidence: Mapping[str, str]) -> list[str]:
    """Return what was seen of the nodes that computed wrong, of those that the job trained on."""
    return [f"{name}: {evidence.get(name, '')}" for name in corrupt if name in trained_on]


def which_checkpoint(wrong: Sequence[str], checkpoint_step: int | None) -> str:
    """Return why the job is not resumed by itself, and what a person chooses from."""
    last = f"step {checkpoint_step} is the last checkpoint" if checkpoint_step is not None else "the last checkpoint is not known"
    return (
        f"wrong results of a node that the job trained on ({'; '.join(wrong)}): its checkpoints may be wrong since then. The "
        f"node set passes now; {last}: go on from it only if it is older than the first sign of the fault, else from one before "
        "that. Start the job from the checkpoint that you choose"
    )
