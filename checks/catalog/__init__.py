"""What fault codes mean: validated data files, and the decoders for codes whose text or number decides."""

from checks.catalog.assess import Assessment, assess, assess_recovery
from checks.catalog.entries import (
    FAULT_CLASSES,
    CatalogError,
    HostSignal,
    SxidEntry,
    XidEntry,
    expected_gpus,
    gpu_family,
    lookup_signal,
    lookup_sxid,
    lookup_xid,
)

__all__ = [
    "FAULT_CLASSES",
    "Assessment",
    "CatalogError",
    "HostSignal",
    "SxidEntry",
    "XidEntry",
    "assess",
    "assess_recovery",
    "expected_gpus",
    "gpu_family",
    "lookup_signal",
    "lookup_sxid",
    "lookup_xid",
]
