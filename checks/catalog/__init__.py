"""What fault codes mean: validated data files, and the decoders for codes whose text or number decides."""

from checks.catalog.assess import assess
from checks.catalog.assessment import Assessment, Machine, assess_recovery
from checks.catalog.entries import (
    HostSignal,
    SxidEntry,
    XidEntry,
    expected_efa,
    expected_gpus,
    gpu_family,
    lookup_signal,
    lookup_sxid,
    lookup_xid,
    nvlink_kind,
)
from checks.catalog.loading import FAULT_CLASSES, CatalogError
from checks.catalog.overrides import BadOverride, Override, read_overrides
from checks.catalog.repeats import RepeatRule, repeat_rules

__all__ = [
    "FAULT_CLASSES",
    "Assessment",
    "BadOverride",
    "CatalogError",
    "HostSignal",
    "Machine",
    "Override",
    "RepeatRule",
    "SxidEntry",
    "XidEntry",
    "assess",
    "assess_recovery",
    "expected_efa",
    "expected_gpus",
    "gpu_family",
    "lookup_signal",
    "lookup_sxid",
    "lookup_xid",
    "nvlink_kind",
    "read_overrides",
    "repeat_rules",
]
