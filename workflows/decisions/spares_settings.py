"""Settings of the spare pool: how large it should be, when a spare counts as qualified, when it is tested."""

from __future__ import annotations

from pydantic import Field

from activities.settings import Section


class SpareSettings(Section):
    """The spare pool. Spares are the customer's own paid capacity: `hotspare spares plan` says how many and why."""

    probability: float = Field(
        0.99,
        gt=0.5,
        lt=1,
        description="Wished probability that a spare is free when a node fails. Source: P99, as ByteRobust (arXiv:2509.16293)",
    )
    mended_share: float = Field(
        0.42,
        ge=0,
        le=1,
        description="Share of failures that a reboot or reset mends, so that the node is back soon. Source: hardware causes of "
        "Llama 3 (arXiv:2407.21783, table 5), weighted with the recoverable shares of Crusoe (H200) and Delta (HBM)",
    )
    repair_p50_h: float = Field(
        0.5,
        gt=0,
        description="Median hours from a failure to a mended, re-tested node. Source: EC2 metal boots in 531 to 792 s (Testing "
        "Farm, 77 boots), DCGM level 2 up to 10.5 min",
    )
    repair_p90_h: float = Field(1.0, gt=0, description="The same for the slowest tenth. Hotspare default: a second try")
    restock_p50_h: float = Field(
        6.0,
        gt=0,
        description="Median hours until a node that is not mended has a healthy successor in the pool. Hotspare default: AWS "
        "names no time for accelerated types; put in your own",
    )
    restock_p90_h: float = Field(24.0, gt=0, description="The same for the slowest tenth. Hotspare default: a support case")
    bad_on_arrival: float = Field(
        0.03,
        ge=0,
        lt=0.9,
        description="Share of spares that fail their first test. Source: Imbue, about 3 % of machines break in a week; OPT-175B "
        "saw 12.5 % after a rebuild",
    )
    nodes_per_event: float = Field(
        1.7,
        ge=1,
        description="Nodes that one event takes out, mean; 1: failures are independent. Source: fitted to InfiniteHBD-Trace, "
        "8 bad nodes on the 99th day of 100 at a mean of 1.30 (400 servers, without stress tests)",
    )
    qualified_h: float = Field(
        48.0,
        gt=0,
        description="A spare counts for so many hours after it passed. Hotspare default: two rounds of tests may fail to run",
    )
    trust_h: float = Field(
        24.0,
        ge=0,
        description="A spare that passed its test within so many hours, in the boot that runs still, is looked at and not put "
        "under load again before it joins a job; 0: it always is. Hotspare default: no long test between a fault and the resume, "
        "the burn-in of the group follows in any case",
    )
    test_every_h: float = Field(
        20.0,
        gt=0,
        description="Hours between tests of an idle spare. Hotspare default: daily; others test idle nodes hourly (CoreWeave)",
    )
    tests_at_once: int = Field(
        1, ge=0, description="Spares tested at once; 0: none is tested. Hotspare default: the others stay free meanwhile"
    )
    faults_needed: int = Field(
        10, ge=1, description="Faults seen here before the observed rate is used. Hotspare default: below it is off by a third"
    )
    observed_days: float = Field(90.0, gt=0, description="Days looked back for the observed rate. Hotspare default: a quarter")
    cost_per_hour: dict[str, float] = Field(
        {}, description="What a node costs per hour, by instance type, in your currency; from your contract or the AWS price list"
    )
