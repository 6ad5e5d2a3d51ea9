"""How much the strikes of a host or GPU still weigh: each loses half of its weight in every half-life."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from activities.gpu_records import KEPT_STRIKES, Strike
from activities.host_memory import HostRecord


def weight(strikes: Iterable[Strike], now: datetime, half_life_days: float) -> float:
    """Return what these strikes weigh together; one of this moment weighs 1. One in the future is taken as of now."""
    half_life = timedelta(days=half_life_days)
    return float(sum(0.5 ** (max(now - one.at, timedelta(0)) / half_life) for one in strikes))


def host_weight(record: HostRecord, now: datetime, half_life_days: float) -> float:
    """Return what the strikes of a host weigh. Those counted before they were dated are as old as its last incident."""
    undated = 0.0
    if record.last_incident_closed_at is not None and len(record.struck) < record.strikes and not _full(record):
        older = Strike(at=min([record.last_incident_closed_at, *(one.at for one in record.struck)]))
        undated = weight([older] * (record.strikes - len(record.struck)), now, half_life_days)
    return weight(record.struck, now, half_life_days) + undated


def _full(record: HostRecord) -> bool:
    """Whether the list of dated strikes has dropped its oldest, which weigh nothing any more."""
    return len(record.struck) >= KEPT_STRIKES
