"""The numbers that the probe goes by. Each can be overridden with `--thresholds '{"name": value}'`."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from checks.diagnosis.facts import EVENT_AGE_S


class BadThreshold(ValueError):
    """A threshold that does not exist or is no positive number; the message names it."""


@dataclass(frozen=True)
class Thresholds:
    """Limits of the probe, seconds unless said otherwise. `expected_gpus` 0: as many as the instance type has."""

    nvml_deadline_s: float = 30.0
    """A driver that needs longer hangs. Hotspare default: without persistence mode, opening 8 GPUs takes about 10 s."""
    command_deadline_s: float = 5.0
    """Limit of one command such as dmesg. Hotspare default: a full ring buffer prints in well under a second."""
    event_age_s: float = EVENT_AGE_S
    """Age up to which a fault that is an event, not a state, counts. Hotspare default: three sweeps of 5 minutes."""
    expected_gpus: float = 0
    """GPUs that the node must have. Source for 0: EC2 instance type pages, by instance type."""
    min_memory_percent: float = 2.0
    """Available system memory below this per cent is a warning. Hotspare default: below it the kernel soon kills processes."""
    max_table_percent: float = 90.0
    """A table of the kernel (open files, connections) that is fuller is a warning. Hotspare default: at 100 it refuses."""
    min_disk_percent: float = 5.0
    """A file system with less free space or inodes, per cent, is full. Hotspare default: half of what kubelet asks for."""
    mount_deadline_s: float = 3.0
    """A file system that needs longer to say how full it is hangs. Hotspare default: a healthy server needs milliseconds."""
    max_clock_offset_s: float = 0.1
    """A clock that is farther off is a warning. Hotspare default: lines of several nodes can still be put in order."""
    expected_efa: float = 0
    """EFA interfaces that the node must have. Source for 0: EC2 API, MaximumEfaInterfaces of its type."""
    expected_ib_ports: float = 0
    """InfiniBand and RoCE ports that must be up; the others may have no cable. Source for 0: gpud, by GPU; one where unknown."""
    ib_symbol_errors_per_h: float = 120.0
    """More symbol errors in an hour than that degrade a port. Source: NVSentinel; the InfiniBand bit error rate limit."""
    ib_link_recoveries_per_min: float = 5.0
    """Link recoveries of a port a minute. Source: NVSentinel."""
    ib_receive_errors_per_s: float = 10.0
    """Packets that a port received with errors, a second. Source: NVSentinel."""
    ib_ack_timeouts_per_s: float = 1.0
    """Acknowledgements that a port missed, a second. Source: NVSentinel."""
    ib_discards_per_s: float = 100.0
    """Packets that a port threw away, a second. Source: NVSentinel."""
    roce_slow_restarts_per_s: float = 10.0
    """Times that a RoCE port began slowly again, a second. Source: NVSentinel."""
    carrier_changes_per_h: float = 2.0
    """Changes of a network interface's carrier in an hour. Source: NVSentinel, 2 in an interval."""
    efa_errors_per_10min: float = 0
    """Retransmission time-outs and the like of an EFA device in 10 minutes. Hotspare default: flat while all is well."""
    pcie_corrected_per_min: float = 100.0
    """PCIe errors that a device corrected, a minute. Hotspare default: a link in order corrects a few a day."""
    memory_corrected_per_day: float = 1000.0
    """Memory errors corrected on one module in a day. Hotspare default: a module that wears out, not a particle now and then."""
    nvlink_crc_per_s: float = 100.0
    """CRC errors of one NVLink a second that are too many. Source: DCGM 4.6."""
    row_remaps_per_30_days: float = 3.0
    """Uncorrected memory rows remapped in 30 days that call for diagnostics. Hotspare default: a bad bank goes on failing."""
    slowdown_percent: float = 60.0
    """Share of 10 minutes at clocks lowered by heat or power brake that is a fault. Source: gpud, 0.6 events a minute."""


def read_thresholds(text: str) -> Thresholds:
    """Read overrides from JSON. Raises BadThreshold for an unknown name or a value that is no number of 0 or more."""
    known = {field.name for field in fields(Thresholds)}
    try:
        given = json.loads(text or "{}")
    except ValueError as error:
        raise BadThreshold(f"thresholds are no JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadThreshold("thresholds are no JSON object")
    for name, value in given.items():
        if name not in known:
            raise BadThreshold(f"no threshold is named {name!r}; there are {', '.join(sorted(known))}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise BadThreshold(f"threshold {name} is {value!r}, expected a number of 0 or more")
    return Thresholds(**given)
