"""A report in words, and what makes two reports the same one."""

from __future__ import annotations

from activities.node import Report


def report_key(report: Report) -> str:
    """Return what makes two reports the same one."""
    if report.key:
        return report.key
    return "/".join(
        str(part)
        for part in (report.source, report.xid, report.sxid, report.what, report.gpu.uuid or report.gpu.pci, report.seen_at)
    )


def describe(report: Report) -> str:
    """Return a report in one line."""
    code = f"XID {report.xid}" if report.xid is not None else f"SXid {report.sxid}" if report.sxid is not None else ""
    gpu = report.gpu.pci or report.gpu.uuid or ("" if report.gpu.index is None else f"GPU {report.gpu.index}")
    what = report.what or report.raw
    said = " ".join([*(part for part in (code, gpu) if part and part not in what), what]).strip() or "look at this node"
    return f"{report.source}: {'resolved: ' if report.resolved else ''}{said}"
