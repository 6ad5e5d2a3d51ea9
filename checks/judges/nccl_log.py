"""What NCCL's own log tells of a run: how each host reached the network, the first warning and whose it was. Judges nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from checks.judges.text import clean

EFA, SOCKETS, INFINIBAND = "efa", "sockets", "infiniband"

KEPT_LINES, KEPT_CHARACTERS = 12, 240
"""Lines of the log that are kept with a result, and characters of each. Hotspare defaults: they go into Temporal's history."""


@dataclass(frozen=True)
class LogWarning:
    """A WARN line: the host that printed it, its rank where the list of ranks tells it, and the words."""

    host: str
    rank: Optional[int]
    text: str

    def __str__(self) -> str:
        whose = f"rank {self.rank} on {self.host}" if self.rank is not None else self.host
        return f"first warning of NCCL, by {whose}: {self.text}"


@dataclass(frozen=True)
class NcclLog:
    """`transports` has the hosts of each way to the network; `kept` are the lines that tell it, and warnings, a few of each."""

    transports: Mapping[str, tuple[str, ...]]
    warning: Optional[LogWarning]
    kept: tuple[str, ...]

    @property
    def transport(self) -> str:
        """The way to the network in words: one for all hosts, or which host goes another way. Empty where the log is silent."""
        ways = sorted(self.transports, key=lambda way: -len(self.transports[way]))
        if len(ways) < 2:
            return "".join(ways)
        others = [f"{way} on {', '.join(self.transports[way][:8])}" for way in ways[1:]]
        return f"{ways[0]}, but {'; '.join(others)}"


_LINE = re.compile(r"(?<![\w.-])([\w.-]{1,64}):(\d{1,10}):\d{1,10} \[[^\]]{0,9}\] .{0,120}?NCCL (INFO|WARN) ?(.*)$")
_RANK = re.compile(r"#\s+Rank\s+(\d{1,7})\s+(?:Group\s+\d+\s+)?Pid\s+(\d{1,10}) on\s+(\S+)\s+device")
_USED = re.compile(r"via NET/(\w[\w ]{0,30}?)/\d")
_CHOSEN = re.compile(r"(?:Using network|(?:Initialized|Assigned) NET plugin) (\w[\w ]{0,30}?)(?: to comm)?\s*$")
_PROVIDER = re.compile(r"[Pp]rovider is (\w+)")
_TELLING = re.compile(
    r"via NET/|Using network|NET plugin|[Pp]rovider is|NCCL version|NET/OFI Initializing|No plugin found|NCCL_TOPO_FILE"
)
_SLOW_PROVIDERS = ("tcp", "udp", "sockets")


def read_log(text: str) -> NcclLog:
    """Read the log out of a run's whole output. Launcher's prefixes stay: its lines begin with a host, as some prefixes do."""
    ranks: dict[tuple[str, str], int] = {}
    used, chosen, providers = dict[str, str](), dict[str, str](), dict[str, str]()
    warning: Optional[LogWarning] = None
    telling, warnings = list[str](), list[str]()
    for line in clean(text).split("\n"):
        if device := _RANK.search(line[:300]):
            ranks[device.group(3), device.group(2)] = int(device.group(1))
        found = _LINE.search(line[:2000])
        if not found:
            continue
        host, pid, level, said = found.groups()
        for pattern, by_host in ((_USED, used), (_CHOSEN, chosen), (_PROVIDER, providers)):
            if match := pattern.search(said):
                by_host.setdefault(host, match.group(1))
        if level == "WARN":
            warning = warning or LogWarning(host, ranks.get((host, pid)), said.strip()[:KEPT_CHARACTERS])
            warnings.append(line)
        elif _TELLING.search(said):
            telling.append(line)
    hosts = list(dict.fromkeys([*used, *chosen]))
    ways = {host: _way(used.get(host) or chosen[host], providers.get(host, "")) for host in hosts}
    return NcclLog(_by_way(ways), warning, _kept(warnings, telling))


def _way(network: str, provider: str) -> str:
    if network.endswith("Libfabric") or network == "OFI":
        if provider.startswith(_SLOW_PROVIDERS):
            return SOCKETS
        return provider or EFA
    return {"Socket": SOCKETS, "IB": INFINIBAND}.get(network, network)


def _by_way(ways: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {way: tuple(host for host in ways if ways[host] == way) for way in dict.fromkeys(ways.values())}


def _kept(warnings: Sequence[str], telling: Sequence[str]) -> tuple[str, ...]:
    first = list(dict.fromkeys(warnings))[: KEPT_LINES // 2]
    rest = list(dict.fromkeys(telling))[: KEPT_LINES - len(first)]
    return tuple(line.strip()[:KEPT_CHARACTERS] for line in [*first, *rest])
