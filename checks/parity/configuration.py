"""How a node is set up, fact by fact, each tagged: known, not applicable, or not to be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

KNOWN = "known"
NOT_APPLICABLE = "not_applicable"
UNREADABLE = "unreadable"

FACTS = {
    "image": "image",
    "os": "operating system",
    "kernel": "kernel",
    "driver": "driver",
    "driver_kind": "kind of the driver's kernel modules",
    "fabric_manager": "Fabric Manager",
    "cuda": "CUDA toolkit",
    "nccl": "NCCL",
    "efa_installer": "EFA installer",
    "efa_driver": "EFA driver",
    "libfabric": "libfabric",
    "ofi_plugin": "OFI plugin",
    "efa_devices": "EFA devices",
    "gpus": "GPUs",
    "gpu_model": "GPU model",
    "mig_mode": "MIG mode",
    "ecc_mode": "ECC mode",
    "persistence_mode": "persistence mode",
    "compute_mode": "compute mode",
    "clock_sm_max": "highest SM clock",
    "clock_application": "application clock",
    "instance_store": "instance store",
    "shared_mounts": "shared file systems",
    "mounts": "mounts",
    "clock": "clock",
    "imex_domain": "IMEX domain",
}
"""What is compared, by the name that settings use, with the words for people."""

TEXT_LIMIT = 200
"""Characters kept of one value. Hotspare default: versions are short, and a list of mounts is cut alike on every node."""


@dataclass(frozen=True)
class Fact:
    """One value: `state` is known, not_applicable or unreadable; `value` is set only when known, `why` only when not."""

    state: str
    value: str = ""
    why: str = ""


def known(value: str) -> Fact:
    """A value that was read."""
    return Fact(KNOWN, value[:TEXT_LIMIT])


def not_applicable(why: str) -> Fact:
    """The node has no such thing, and need not."""
    return Fact(NOT_APPLICABLE, why=why)


def unreadable(why: str) -> Fact:
    """It ought to be there and could not be read: unknown, never a difference."""
    return Fact(UNREADABLE, why=why[:TEXT_LIMIT])


@dataclass(frozen=True)
class Configuration:
    """All facts of one node. A fact that nobody looked for reads as unreadable."""

    instance_type: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def get(self, name: str) -> Fact:
        """Return a fact."""
        return self.facts.get(name) or unreadable("not looked for")

    def value(self, name: str) -> Optional[str]:
        """Return a value, None unless it is known."""
        fact = self.get(name)
        return fact.value if fact.state == KNOWN else None

    def having(self, more: Mapping[str, Fact]) -> Configuration:
        """Return the configuration with more facts, or others."""
        return Configuration(self.instance_type, {**self.facts, **more})

    def to_json(self) -> dict[str, Any]:
        """Return plain data: values by name, and why the others have none."""
        document: dict[str, Any] = {"instance_type": self.instance_type, "values": {}, NOT_APPLICABLE: {}, UNREADABLE: {}}
        for name, fact in self.facts.items():
            if fact.state == KNOWN:
                document["values"][name] = fact.value
            else:
                document[fact.state][name] = fact.why
        return document


def configuration_from_json(document: Mapping[str, Any]) -> Configuration:
    """Rebuild what `Configuration.to_json` gave. Raises KeyError, TypeError or AttributeError for anything else."""
    facts = {str(name): Fact(KNOWN, str(value)) for name, value in document["values"].items()}
    for state in (NOT_APPLICABLE, UNREADABLE):
        facts.update((str(name), Fact(state, why=str(why))) for name, why in document[state].items())
    return Configuration(str(document["instance_type"]), facts)
