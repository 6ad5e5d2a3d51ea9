"""How the node is set up: versions, devices, modes, clocks, disks, mounts; for the comparison with its peers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Callable, Optional

from checks.host import Host
from checks.model import Action, Finding, Verdict
from checks.parity import Configuration, own_differences
from checks.parity.configuration import Fact, known, not_applicable, unreadable
from checks.probes.imex import imex_domain
from checks.probes.pci import PciGpus
from checks.probes.readings import NOT_SUPPORTED, OK, NvmlState, Reading
from checks.probes.software import read_software

INFINIBAND = "/sys/class/infiniband"
AMAZON = "0x1d0f"
BLOCK = "/sys/block"
STORE_MODEL = "Instance Storage"
"""In the model of an NVMe disk of the instance store. Source: EC2 User Guide, "SSD instance store volumes"."""

SHARED_KINDS = frozenset(
    {"nfs", "nfs4", "lustre", "beegfs", "gpfs", "ceph", "wekafs", "9p", "cifs", "fuse.s3fs", "fuse.mount-s3"}
)
"""Kinds of file systems that are the same on all nodes of a job."""

OF_CONTAINERS = ("/var/lib/kubelet/", "/var/lib/docker/", "/var/lib/containerd/", "/run/", "/proc/", "/sys/")
"""Below these, mounts come and go with containers and users."""

_SWITCH = {0: "off", 1: "on"}
_COMPUTE = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_ARRAY = re.compile(
    r"^(md\w+) : (?:active|inactive)(?: \([^)]*\))?(?: (raid\d+|linear|multipath))?((?: \w+\[\d+\](?:\(\w\))*)+)", re.MULTILINE
)


def read_configuration(host: Host, pci: PciGpus, nvml: NvmlState, instance_type: str, deadline_s: float) -> Configuration:
    """Collect the facts. The image is not among them: only the control side knows it."""
    facts = read_software(host, instance_type, nvml.driver_version, deadline_s)
    facts["efa_devices"] = _efa_devices(host)
    facts["gpus"] = known(str(len(pci.addresses))) if pci.readable else unreadable("the PCI bus could not be listed")
    facts["instance_store"] = _instance_store(host)
    facts["imex_domain"] = imex_domain(host, instance_type)
    facts["shared_mounts"] = _shared_mounts(host.read_text("/proc/mounts"))
    facts.update(_gpu_facts(nvml))
    return Configuration(instance_type, facts)


def with_checks(configuration: Configuration, findings: Iterable[Finding]) -> Configuration:
    """Add what other checks have found out already: whether mounts answer and whether the clock is synchronised."""
    words = {"mounts": ("readable", "not readable"), "clock": ("synchronised", "not synchronised")}
    facts = {}
    for name, (well, ill) in words.items():
        verdicts = {finding.verdict for finding in findings if finding.check == name}
        if verdicts & {Verdict.WARN, Verdict.CRITICAL}:
            facts[name] = known(ill)
        elif Verdict.UNKNOWN in verdicts:
            facts[name] = unreadable("its own check could not tell")
        elif Verdict.OK in verdicts:
            facts[name] = known(well)
    return configuration.having(facts)


def judge_configuration(configuration: Configuration, at: float) -> list[Finding]:
    """Return what is wrong without any peer. No repair is asked for: an installation does not mend by a restart."""
    return [
        Finding("parity", Verdict.WARN, f"configuration: {difference.words}", "the node's own versions", at, Action.NONE)
        for difference in own_differences(configuration)
    ]


def _efa_devices(host: Host) -> Fact:
    names = host.list(INFINIBAND)
    if names is None:
        classes = host.list(INFINIBAND.rpartition("/")[0])
        return known("0") if classes else unreadable(f"{INFINIBAND} could not be listed")
    return known(str(sum(host.read_text(f"{INFINIBAND}/{name}/device/vendor") == AMAZON for name in names)))


def _instance_store(host: Host) -> Fact:
    """Count its disks and say how they are joined; disks that are in no array are named as such."""
    disks = host.list(BLOCK)
    if disks is None:
        return unreadable(f"{BLOCK} could not be listed")
    count = sum(
        STORE_MODEL in (host.read_text(f"{BLOCK}/{disk}/device/model") or "") for disk in disks if disk.startswith("nvme")
    )
    places = {device: place for device, place, _ in _mounts(host.read_text("/proc/mounts") or "")}
    arrays = [
        f"{level or 'array'} of {len(members.split())}{_at(places.get(f'/dev/{name}'))}"
        for name, level, members in _ARRAY.findall(host.read_text("/proc/mdstat") or "")
    ]
    return known(f"{count} disks, {', '.join(sorted(arrays)) or 'no array'}")


def _at(place: Optional[str]) -> str:
    return f" on {place}" if place else " not mounted"


def _shared_mounts(text: Optional[str]) -> Fact:
    if text is None:
        return unreadable("/proc/mounts could not be read")
    mounts = list(_mounts(text))
    automatic = tuple(f"{place}/" for _, place, kind in mounts if kind == "autofs")
    shared = sorted(
        f"{kind} {place}"
        for _, place, kind in mounts
        if kind in SHARED_KINDS and not f"{place}/".startswith((*OF_CONTAINERS, *automatic))
    )
    return known(", ".join(shared) or "none")


def _mounts(text: str) -> Iterable[tuple[str, str, str]]:
    """Device, place and kind of each mount."""
    for line in text.splitlines():
        parts = line.split()
        if len(parts) > 3:
            yield parts[0], parts[1], parts[2]


def _gpu_facts(nvml: NvmlState) -> dict[str, Fact]:
    texts: dict[str, tuple[str, Callable[[Any], str]]] = {
        "gpu_model": ("name", str),
        "mig_mode": ("mig_mode", _switch),
        "ecc_mode": ("ecc_mode", _switch),
        "persistence_mode": ("persistence_mode", lambda mode: _SWITCH.get(mode, str(mode))),
        "compute_mode": ("compute_mode", lambda mode: _COMPUTE.get(mode, str(mode))),
        "clock_sm_max": ("clock_sm_max_mhz", _megahertz),
        "clock_application": ("clock_application_mhz", _megahertz),
    }
    if nvml.outcome != "read" or not nvml.gpus:
        why = f"NVML: {nvml.detail or nvml.outcome}" if nvml.outcome != "read" else "NVML lists no GPU"
        return dict.fromkeys(texts, unreadable(why))
    return {fact: _over_gpus([gpu.get(name) for gpu in nvml.gpus], words) for fact, (name, words) in texts.items()}


def _over_gpus(readings: Sequence[Reading], words: Callable[[Any], str]) -> Fact:
    """One value for all GPUs of the node; where they differ among themselves, how many have which."""
    if all(reading.state == NOT_SUPPORTED for reading in readings):
        return not_applicable("these GPUs have no such thing")
    bad = next((reading for reading in readings if reading.state != OK), None)
    if bad is not None:
        return unreadable(f"NVML: {bad.detail or bad.state}")
    values = Counter(words(reading.value) for reading in readings)
    if len(values) == 1:
        return known(next(iter(values)))
    return known(", ".join(f"{value} on {count} GPUs" for value, count in sorted(values.items())))


def _switch(mode: Sequence[int]) -> str:
    now, later = (_SWITCH.get(one, str(one)) for one in mode)
    return now if now == later else f"{now} ({later} after the next reset)"


def _megahertz(clock: Any) -> str:
    return f"{clock} MHz"
