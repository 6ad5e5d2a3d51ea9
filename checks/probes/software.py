"""Versions of what is installed on a node: system, driver, Fabric Manager, CUDA, NCCL, EFA.

A file that is not in its folder is "not installed", a value like any other; a folder that cannot be listed tells nothing.
"""

from __future__ import annotations

import re
from typing import Callable, Optional

from checks.catalog import gpu_family, nvlink_kind
from checks.host import CommandOutput, Host
from checks.parity.configuration import Fact, known, not_applicable, unreadable

NOT_INSTALLED = "not installed"
IN_KERNEL = "the kernel's own"

DRIVER = "/proc/driver/nvidia/version"
EFA_PACKAGES = "/opt/amazon/efa_installed_packages"
EFA_MODULE = "/sys/module/efa/version"
CUDA = "/usr/local/cuda"

NCCL_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/cuda/lib",
    "/opt/nccl/build/lib",
)
"""Where NCCL's library lies: packages of Debian and of Red Hat, and the AWS deep learning images."""

NCCL_HEADER = "/usr/include/nccl.h"

_DRIVER = re.compile(r"^NVRM version:(.{0,200}?\bKernel Module\b.{0,80}?)\s(\d{3,4}(?:\.\d{1,4}){1,3})(?=\s|$)", re.MULTILINE)
_MANAGER = re.compile(r"version is\s*:\s*(\d[\w.]*)")
_NCCL_LIBRARY = re.compile(r"^libnccl\.so\.(\d+\.\d+\.\d+)$")
_NCCL_HEADER = re.compile(r"^#define NCCL_(MAJOR|MINOR|PATCH)\s+(\d+)", re.MULTILINE)
_CUDA_JSON = re.compile(r'"cuda"\s*:\s*\{[^{}]*?"version"\s*:\s*"([^"]+)"')
_CUDA_TEXT = re.compile(r"CUDA Version\s+(\d[\w.]*)")
_INSTALLER = re.compile(r"^#\s*EFA installer version:\s*(\S+)", re.MULTILINE)
_LIBFABRIC = re.compile(r"\blibfabric\d*-aws(?:-bin)?[-_](\d[^\s_]*?)(?=[-_\s]|$)")
_PLUGIN = re.compile(r"\b(?:libnccl-ofi|aws-ofi-nccl)[\w-]*?[-_]v?(\d+(?:\.\d+)+)")
_PRETTY = re.compile(r"^PRETTY_NAME=\"?([^\"\n]+)\"?", re.MULTILINE)


def read_software(host: Host, instance_type: str, nvml_driver: str, deadline_s: float) -> dict[str, Fact]:
    """Read every version. `nvml_driver` is NVML's word on the driver, for hosts whose procfs is not seen."""
    facts = {"os": _system(host), "kernel": _kernel(host), **_driver(host, nvml_driver)}
    manager, efa = _fabric_manager(host, instance_type, deadline_s), _efa_driver(host, deadline_s)
    facts.update(cuda=_cuda(host), nccl=_nccl(host), **_efa_packages(host))
    facts.update(fabric_manager=manager(), efa_driver=efa())
    return facts


def driver_version_in(text: str) -> str:
    """Return the version in /proc/driver/nvidia/version, empty where it has none."""
    found = _DRIVER.search(text)
    return found.group(2) if found else ""


def _system(host: Host) -> Fact:
    found = _PRETTY.search(host.read_text("/etc/os-release") or "")
    return known(found.group(1).strip()) if found else unreadable("/etc/os-release could not be read")


def _kernel(host: Host) -> Fact:
    release = host.read_text("/proc/sys/kernel/osrelease")
    return known(release) if release else unreadable("/proc/sys/kernel/osrelease could not be read")


def _driver(host: Host, nvml_driver: str) -> dict[str, Fact]:
    """The driver that is loaded, not the one that is installed."""
    found = _DRIVER.search(host.read_text(DRIVER) or "")
    if found:
        return {"driver": known(found.group(2)), "driver_kind": known("open" if "Open" in found.group(1) else "proprietary")}
    why = unreadable(f"{DRIVER} could not be read")
    return {"driver": known(nvml_driver) if nvml_driver else why, "driver_kind": why}


def _fabric_manager(host: Host, instance_type: str, deadline_s: float) -> Callable[[], Fact]:
    """Only boards with NVSwitches have one; the switches of an NVL72 have theirs elsewhere."""
    if gpu_family(instance_type) and nvlink_kind(instance_type) != "switch":
        fact = not_applicable(f"{instance_type} has no NVSwitches of its own")
        return lambda: fact
    running = host.start(["nv-fabricmanager", "--version"], deadline_s)

    def ended() -> Fact:
        said = running()
        found = _MANAGER.search(said.stdout + said.stderr)
        return known(found.group(1)) if found else unreadable(f"nv-fabricmanager --version: {_failure(said)}")

    return ended


def _cuda(host: Host) -> Fact:
    for name, pattern in (("version.json", _CUDA_JSON), ("version.txt", _CUDA_TEXT)):
        found = pattern.search(host.read_text(f"{CUDA}/{name}") or "")
        if found:
            return known(found.group(1))
    return _absent(host, "/usr/local", "cuda") or unreadable(f"{CUDA} tells no version")


def _nccl(host: Host) -> Fact:
    """All versions whose library is there: which one a program loads is its own affair."""
    listed = [names for names in map(host.list, NCCL_FOLDERS) if names is not None]
    versions = {found.group(1) for names in listed for name in names if (found := _NCCL_LIBRARY.match(name))}
    if not versions:
        parts = dict(_NCCL_HEADER.findall(host.read_text(NCCL_HEADER) or ""))
        if len(parts) == len(("MAJOR", "MINOR", "PATCH")):
            versions = {f"{parts['MAJOR']}.{parts['MINOR']}.{parts['PATCH']}"}
    if versions:
        return known(", ".join(sorted(versions)))
    return known(NOT_INSTALLED) if listed else unreadable("no library folder could be listed")


def _efa_packages(host: Host) -> dict[str, Fact]:
    """What the EFA installer wrote down; the names of its packages are those of Debian or of Red Hat."""
    patterns = {"efa_installer": _INSTALLER, "libfabric": _LIBFABRIC, "ofi_plugin": _PLUGIN}
    text = host.read_text(EFA_PACKAGES)
    if text is None:
        folder, _, name = EFA_PACKAGES.rpartition("/")
        fact = _absent(host, "/opt", "amazon") or _absent(host, folder, name) or unreadable(f"{EFA_PACKAGES} could not be read")
        return dict.fromkeys(patterns, fact)
    found = {name: pattern.search(text) for name, pattern in patterns.items()}
    return {name: known(one.group(1)) if one else _unnamed(name) for name, one in found.items()}


def _unnamed(name: str) -> Fact:
    """Old installers leave the plugin to others, so that it is not in the list does not mean that it is not there."""
    return unreadable(f"{EFA_PACKAGES} does not name it") if name != "libfabric" else known(NOT_INSTALLED)


def _efa_driver(host: Host, deadline_s: float) -> Callable[[], Fact]:
    if version := host.read_text(EFA_MODULE):
        return lambda: known(version)
    running = host.start(["modinfo", "-F", "version", "efa"], deadline_s)

    def ended() -> Fact:
        said = running()
        if said.ok:
            return known(said.stdout.strip() or IN_KERNEL)
        return known(NOT_INSTALLED) if "not found" in said.stderr else unreadable(f"modinfo efa: {_failure(said)}")

    return ended


def _absent(host: Host, folder: str, name: str) -> Optional[Fact]:
    """Say "not installed" where the folder can be listed and the name is not in it."""
    names = host.list(folder)
    return known(NOT_INSTALLED) if names is not None and name not in names else None


def _failure(said: CommandOutput) -> str:
    if said.missing:
        return "no such command"
    if said.timed_out:
        return "did not answer"
    return (said.stderr or said.stdout).strip()[-100:] or f"ended with status {said.exit_status}"
