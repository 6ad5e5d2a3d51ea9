"""Texts that FakeFleet's machines print, in the formats of the real tools: kernel fault lines and nccl-tests output."""

from __future__ import annotations

GPU_BUSES = ("53", "64", "75", "86", "97", "a8", "b9", "ca")
"""PCI buses of the eight GPUs of a p5.48xlarge."""

XID_TEXTS = {
    31: "pid=2101, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted @ 0x7f_00200000.",
    48: "pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at "
    "physAddr 0x18f31d80 partition 16, subpartition 3.",
    63: "pid='<unknown>', name=<unknown>, "
    "Row Remapper: New row (0x0000000018f31d80) marked for remapping, reset gpu to activate.",
    64: "pid='<unknown>', name=<unknown>, Row Remapper Error: (0x00000002eebc4100) - All reserved rows for bank are remapped",
    74: "pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 1(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
    79: "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    94: "pid='<unknown>', name=<unknown>, Contained: SM (0x1). RST: No, D-RST: No",
    95: "pid='<unknown>', name=<unknown>, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No",
    119: "pid=2101, name=python3, Timeout after 6s of waiting for RPC response from GPU3 GSP! "
    "Expected function 76 (GSP_RM_CONTROL).",
}
"""What a driver prints behind the code, for the codes that tests use; other codes print a plain text."""


HEADER = (
    "# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 17179869184 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 "
    "validation: 1 graph: 0"
)


def bus_id(gpu: int) -> str:
    """PCI bus id of a GPU by index."""
    return f"0000:{GPU_BUSES[gpu % len(GPU_BUSES)]}:00"


def xid_line(code: int, gpu: int, monotonic_s: float) -> str:
    """Kernel line of an XID on a GPU."""
    text = XID_TEXTS.get(code, f"pid='<unknown>', name=<unknown>, fault {code}")
    return f"[{monotonic_s:12.6f}] NVRM: Xid (PCI:{bus_id(gpu)}): {code}, {text}"


def all_reduce_text(hosts: list[str], gpus: int, busbw_gbs: float, wrong: int = 0) -> str:
    """Output of all_reduce_perf (second generation) over `hosts`, whose largest size reaches `busbw_gbs` in place."""
    ranks = len(hosts) * gpus
    lines = [
        HEADER,
        "#",
        "# Using devices",
    ]
    for rank in range(ranks):
        host, gpu = hosts[rank // gpus], rank % gpus
        bus = GPU_BUSES[gpu % len(GPU_BUSES)]
        lines.append(
            f"#  Rank {rank:2d} Group  0 Pid  {41000 + rank} on {host:>10} device {gpu:2d} [0x{bus}] NVIDIA H100 80GB HBM3"
        )
    lines += [
        "NCCL version 2.23.4+cuda12.6",
        "#",
        "#                                                              out-of-place                       in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",
    ]
    lines += [_row(1 << exponent, ranks, busbw_gbs * share, wrong) for exponent, share in ((30, 0.95), (32, 0.98), (34, 1.0))]
    lines += [
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# Avg bus bandwidth    : {busbw_gbs * 0.977:g} ",
        "#",
    ]
    return "\n".join(lines) + "\n"


def _row(size: int, ranks: int, busbw_gbs: float, wrong: int) -> str:
    algbw = busbw_gbs / (2 * (ranks - 1) / ranks)
    time_us = size / algbw / 1000
    side = f"{time_us:7.5g} {algbw:7.2f} {busbw_gbs:7.2f} {wrong:6d}"
    return f"{size:12d} {size // 4:13d}  {'float':>8} {'sum':>7} {-1:7d}  {side}  {side}"


def mpirun_unreachable_text(host: str) -> str:
    """What mpirun prints when a member of the group does not answer."""
    rule = "-" * 74
    return (
        f"ssh: connect to host {host} port 22: Connection refused\n{rule}\n"
        "ORTE was unable to reliably start one or more daemons.\n"
        f"This usually is caused by a lack of connectivity to the remote host.\n{rule}\n"
    )
