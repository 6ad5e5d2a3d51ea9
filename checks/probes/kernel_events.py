"""The fault lines of this boot's kernel log, by whichever reader the node allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from checks.catalog import Assessment
from checks.diagnosis import Current, Hardware, Timing, assess_among
from checks.host import Host
from checks.kernel_log import fold, read_lines
from checks.kernel_log.nvidia_lines import parse_gpu_address
from checks.model import NO_NVML_AFTER, Action, Finding, GpuRef, KernelEvent, Verdict
from checks.pci_address import canonical

READERS = (("dmesg",), ("sudo", "-n", "dmesg"), ("journalctl", "-k", "-b", "-o", "json", "--no-pager"))
"""Commands that print this boot's kernel log, first choice first. Many distributions keep dmesg from ordinary users."""


@dataclass(frozen=True)
class KernelLog:
    """This boot's fault events, and GPU UUIDs by PCI bus id as the driver printed them. `error` is set where nothing was read."""

    events: tuple[KernelEvent, ...] = ()
    uuids: tuple[tuple[str, str], ...] = ()
    error: str = ""

    @property
    def nvml_is_unsafe(self) -> str:
        """The XIDs of this boot after which NVML must not be touched, in words; empty if there are none."""
        codes = sorted({event.code for event in self.events if event.kind == "xid" and event.code in NO_NVML_AFTER})
        return ", ".join(f"XID {code}" for code in codes)


def read_kernel_log(host: Host, deadline_s: float) -> KernelLog:
    """Read the kernel log with the first reader that prints anything."""
    tried = []
    for argv in READERS:
        output = host.run(argv, deadline_s)
        if output.ok and output.stdout.strip():
            lines = output.stdout.split("\n")
            addresses = (parse_gpu_address(line) for line in lines if "NVRM: GPU at" in line)
            uuids = tuple((canonical(pair[0]), pair[1]) for pair in addresses if pair)
            return KernelLog(tuple(read_lines(lines)), uuids)
        why = (
            "no such command"
            if output.missing
            else "too slow"
            if output.timed_out
            else output.stderr.strip() or "printed nothing"
        )
        tried.append(f"{' '.join(argv)}: {why[:200]}")
    return KernelLog(error="; ".join(tried))


def judge_kernel_log(
    log: KernelLog, current: Current, readings: Sequence[Finding], hardware: Hardware, timing: Timing
) -> list[Finding]:
    """Return one finding per cause that counts, or one that says how the log as a whole reads.

    `readings` are the findings of the other probes: some lines mean less when the driver's state is known to be in order.
    """
    at = timing.now
    if log.error:
        return [Finding("kernel_log", Verdict.UNKNOWN, "the kernel log could not be read", log.error, at)]
    findings = list(_accusations(current.events, readings, hardware, timing))
    if not findings:
        summary = f"{len(log.events)} fault lines in this boot, none asks for anything"
        findings.append(Finding("kernel_log", Verdict.OK, summary, "; ".join(current.notes)[:1000], at))
    return findings


def _accusations(
    events: Iterable[KernelEvent], readings: Sequence[Finding], hardware: Hardware, timing: Timing
) -> Iterable[Finding]:
    for burst in fold(events):
        for cause in burst.causes:
            meaning = assess_among(cause, readings, hardware.machine)
            if meaning.fault_class == "none":
                continue
            check = "host_signal" if cause.kind == "host" else cause.kind
            seen_at = timing.when(cause.monotonic_s) or 0.0
            gpu = hardware.complete(GpuRef(pci=burst.pci)) if burst.pci else None
            yield Finding(check, _verdict(meaning), meaning.because, cause.raw[:500], seen_at, meaning.action, cause.code, gpu)


def _verdict(meaning: Assessment) -> Verdict:
    """What disrupts the node now is CRITICAL; what can wait, concerns the job alone or needs a person is WARN."""
    disruptive = meaning.action in (Action.RESET_GPU, Action.REBOOT_NODE, Action.POWER_CYCLE, Action.REPLACE_NODE)
    return Verdict.CRITICAL if disruptive and meaning.interrupts_job != "at_boundary" else Verdict.WARN
