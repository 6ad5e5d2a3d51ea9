"""Bounds of a burn-in: how many groups at once, how many rounds and runs, how many nodes it may take out, how long."""

from __future__ import annotations

from pydantic import Field

from activities.settings import Section


class BurnInLimits(Section):
    """How far a burn-in goes to find the bad node before a person is asked."""

    side_by_side: int = Field(
        64,
        ge=1,
        description="Groups that run together at most. Hotspare default: one launch host starts so many mpirun with ease",
    )
    proofs: int = Field(
        2,
        ge=2,
        description="Failing runs, each beside others that passed elsewhere, before a node or path is blamed. Hotspare default: "
        "with 1 % of runs spoilt by noise, two blame one good node of 10,000 (docs/burn-in.md); more cost a round each",
    )
    looks: int = Field(
        2,
        ge=1,
        description="Searches from the start when everything passes in parts and fails together. Hotspare default: a node that "
        "fails at times is missed by one look as often as it passes",
    )
    of_one_switch: int = Field(
        3,
        ge=2,
        description="Bad nodes behind one switch before it is named. Hotspare default: two of thousands share one by chance",
    )
    share_of_a_switch: float = Field(
        0.5, gt=0, le=1, description="And the share of its nodes that is bad. Hotspare default: a failing switch takes most along"
    )
    common_groups: int = Field(
        4,
        ge=2,
        description="Disjoint groups that fail in one round, while none passed yet, before rails are compared: one cause may be "
        "common to all. Hotspare default: a bad node in each of two halves is common, one in each of four groups is rare",
    )
    rail_share: float = Field(
        0.9, gt=0, lt=1, description="A rail is slow below this share of the others. Hotspare default, as for the shipped floors"
    )
    rail_rounds: int = Field(
        10,
        ge=0,
        description="Rounds over single rails, where nobody can be blamed without them or a person wants to see everything. "
        "Hotspare default: eight rails one after the other, and two to see a slow one again; 0 leaves them out",
    )
    rounds: int = Field(
        16,
        ge=1,
        description="Rounds before a person is asked. Hotspare default: 6 find five bad nodes of 2,048, the rest is for noise",
    )
    pair_rounds: int = Field(
        32,
        ge=0,
        description="Rounds on top where a person asks for every pair (burn-in --diagnose). Hotspare default: enough for each of "
        "32 nodes beside each other; at 40 s a round it takes 20 minutes",
    )
    runs: int = Field(
        4096,
        ge=1,
        description="Runs before a person is asked. Hotspare default: pairs of 2,048 nodes three times, and their suspects",
    )
    nodes_out: int = Field(
        32, ge=1, description="Nodes that one burn-in may call bad. Hotspare default: more at once have one common cause"
    )
    deadline_s: float = Field(
        7200.0, gt=0, description="For finding who is to blame. Hotspare default: the time in which a held job is to be resumed"
    )
