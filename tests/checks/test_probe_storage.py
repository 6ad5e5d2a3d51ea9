"""Disks, arrays and file systems: gone, degraded, read-only, full, hung; and what is so by design."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

import pytest

from checks.host import Host
from checks.model import Action, Finding, Verdict
from checks.probes.looks import Looks
from checks.probes.mounts import Answer, Mount, Mounts, ask_one, read_mounts
from checks.probes.storage import Storage, judge_storage, parse_mdstat
from checks.thresholds import Thresholds
from tests.checks.node import TestNode
from tests.checks.watching import START, Watch, fault_class

ROOT = "/dev/nvme0n1p1 / ext4 {} 0 0\n"


@pytest.mark.parametrize(
    ("state", "verdict", "accused"),
    [
        ("live", Verdict.OK, "none"),
        ("resetting", Verdict.WARN, "none"),
        ("connecting", Verdict.WARN, "none"),
        ("dead", Verdict.CRITICAL, "host"),
        ("deleting (no IO)", Verdict.CRITICAL, "host"),
        (None, Verdict.UNKNOWN, "none"),
    ],
)
def test_an_nvme_controller_counts_by_its_state(
    watch: Watch, node: TestNode, state: str | None, verdict: Verdict, accused: str
) -> None:
    node.write("sys/class/nvme/nvme0/state", "live\n")
    node.write("sys/class/nvme/nvme1/model", "Amazon EC2 NVMe Instance Storage\n")
    if state is not None:
        node.write("sys/class/nvme/nvme1/state", f"{state}\n")
    seen = watch.only("disk")
    assert (seen.verdict, fault_class([seen])[0]) == (verdict, accused)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Personalities : \nunused devices: <none>\n", Verdict.OK),
        ("md0 : active raid0 nvme2n1[1] nvme1n1[0]\n      7421870080 blocks super 1.2 512k chunks\n", Verdict.OK),
        ("md0 : active raid1 sdb1[1] sda1[0]\n      104 blocks [2/2] [UU]\n", Verdict.OK),
        ("md0 : active raid1 sda1[0]\n      104 blocks [2/1] [U_]\n", Verdict.CRITICAL),
        ("md0 : active raid5 sdc1[2](F) sdb1[1] sda1[0]\n      104 blocks level 5 [3/2] [UU_]\n", Verdict.CRITICAL),
        ("md0 : active raid0 nvme2n1[1](F) nvme1n1[0]\n      104 blocks super 1.2 512k chunks\n", Verdict.CRITICAL),
        ("md0 : broken raid0 nvme1n1[0]\n      104 blocks\n", Verdict.CRITICAL),
        ("md127 : inactive nvme1n1[0](S)\n      104 blocks super 1.2\n", Verdict.CRITICAL),
        ("md0 : active (auto-read-only) raid1 sdb1[1] sda1[0]\n      104 blocks [2/2] [UU]\n", Verdict.OK),
        (
            "md0 : active raid1 sdb1[2] sda1[0]\n      104 blocks [2/1] [U_]\n      [=>....]  recovery = 7.1% (7/104)\n",
            Verdict.WARN,
        ),
    ],
)
def test_an_array_counts_by_its_members(watch: Watch, node: TestNode, text: str, verdict: Verdict) -> None:
    node.write("proc/mdstat", f"Personalities : [raid0] [raid1]\n{text}\nunused devices: <none>\n")
    assert watch.only("disk").verdict is verdict


def test_several_arrays_are_told_apart() -> None:
    whole = "md0 : active raid1 a[0] b[1]\n   9 blocks [2/2] [UU]\n"
    text = f"Personalities : [raid1]\nmd1 : active raid1 a[0]\n      9 blocks [2/1] [U_]\n\n{whole}"
    assert [(one.name, one.missing) for one in parse_mdstat(text)] == [("md1", 1), ("md0", 0)]


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        (ROOT.format("rw,relatime"), Verdict.OK),
        (ROOT.format("ro,relatime"), Verdict.CRITICAL),
        (ROOT.format("rw,relatime,emergency_ro"), Verdict.CRITICAL),
        ("/dev/root / ext4 ro,relatime,errors=remount-ro 0 0\n", Verdict.CRITICAL),
        ("/dev/dm-0 / ext4 ro,relatime 0 0\n", Verdict.OK),
        ("/dev/loop3 /snap/core/1 squashfs ro,nodev 0 0\n" + ROOT.format("rw"), Verdict.OK),
        ("tmpfs /sys/fs/cgroup tmpfs ro,nosuid 0 0\n" + ROOT.format("rw"), Verdict.OK),
        (ROOT.format("rw") + "/dev/nvme0n1p1 /var/lib/kubelet/x ext4 ro 0 0\n", Verdict.OK),
    ],
)
def test_a_file_system_that_went_read_only_is_told_from_one_that_is_so_by_design(
    watch: Watch, node: TestNode, line: str, verdict: Verdict
) -> None:
    node.write("proc/mounts", line)
    seen = watch.only("disk")
    assert (seen.verdict, fault_class([seen])[0]) == (verdict, "host" if verdict is Verdict.CRITICAL else "none")


def test_a_file_system_that_fstab_wants_read_only_is_in_order_until_it_was_seen_writable(watch: Watch, node: TestNode) -> None:
    node.write("etc/fstab", "# device place\nUUID=1 / ext4 ro,noatime 0 1\n")
    node.write("proc/mounts", ROOT.format("ro"))
    assert watch.ill() == []
    node.write("proc/mounts", ROOT.format("rw"))
    assert watch.ill(60) == []
    node.write("proc/mounts", ROOT.format("ro"))
    assert "writable at the last look" in watch.only("disk", 60).evidence


def test_mounts_that_cannot_be_listed_are_unknown(watch: Watch, node: TestNode) -> None:
    (node.root / "proc/mounts").unlink()
    assert watch.only("mounts").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("what", ["space", "inodes"])
def test_a_full_file_system_is_a_matter_of_configuration(what: str) -> None:
    space, inodes = (1.0, 50.0) if what == "space" else (50.0, 1.0)
    mount = Mount("/dev/nvme0n1p1", "/", "ext4", ("rw",), False, "ok", "", space, inodes)
    full = [one for one in _judge(mount) if one.check == "disk_full"]
    assert [what in one.summary for one in full] == [True]
    assert fault_class([full[0]]) == ("configuration", Action.NONE)
    assert "threshold 5 %" in full[0].evidence


@pytest.mark.parametrize(
    ("place", "network", "percent"), [("/", False, 5.0), ("/boot", False, 0.5), ("/fsx", True, 0.5), ("/", False, None)]
)
def test_file_systems_with_room_small_ones_and_shared_ones_are_not_full(place: str, network: bool, percent: float | None) -> None:
    mount = Mount("/dev/x", place, "nfs4" if network else "ext4", ("rw",), network, "ok", "", percent, None)
    assert not [one for one in _judge(mount) if one.check == "disk_full"]


def _judge(mount: Mount) -> list[Finding]:
    storage = Storage({}, (), Mounts(True, (mount,)), frozenset())
    return judge_storage(storage, Looks("boot", START), Thresholds(), START)


def asking(hung: str | None = None, broken: str = "", number: int = errno.ESTALE) -> Callable[[str], Answer]:
    """File systems of which some never answer (all of them: "") and some answer with an error."""

    def ask(path: str) -> Answer:
        if hung is not None and path.endswith(hung):
            threading.Event().wait()
        if broken and path.endswith(broken):
            return ("error", os.strerror(number), None, None)
        return ("ok", "", 50.0, 50.0)

    return ask


MANY = "fs-1:/ /home nfs4 rw 0 0\n" + ROOT.format("rw") + "fs-2@tcp:/x /fsx lustre rw 0 0\ns3 /data fuse.mount-s3 rw 0 0\n"


def test_a_hung_server_holds_up_neither_the_probe_nor_the_look_at_the_others(node: TestNode) -> None:
    node.write("proc/mounts", MANY)
    seen = read_mounts(Host(str(node.root)), 0.2, asking(hung="/home"))
    assert {one.place: one.state for one in seen.mounts} == {"/": "ok", "/home": "hung", "/fsx": "ok", "/data": "ok"}
    findings = judge_storage(Storage({}, (), seen, frozenset()), Looks("boot", START), Thresholds(), START)
    (ill,) = [one for one in findings if one.verdict is not Verdict.OK]
    assert (ill.check, ill.verdict, fault_class([ill])) == ("mounts", Verdict.WARN, ("configuration", Action.NONE))
    assert "no answer within 0.2 s" in ill.evidence


def test_when_everything_hangs_the_probe_stops_asking(node: TestNode) -> None:
    node.write("proc/mounts", "".join(f"fs-{number}:/ /n{number} nfs4 rw 0 0\n" for number in range(9)))
    states = [one.state for one in read_mounts(Host(str(node.root)), 0.05, asking(hung="")).mounts]
    assert states == ["hung"] * 3 + ["not_asked"] * 6


def test_a_stale_server_and_a_dead_disk_are_told_apart(node: TestNode) -> None:
    node.write("proc/mounts", MANY)
    for broken, number, check in (("/fsx", errno.ESTALE, "mounts"), ("/", errno.EIO, "disk")):
        seen = read_mounts(Host(str(node.root)), 5.0, asking(broken=broken, number=number))
        findings = judge_storage(Storage({}, (), seen, frozenset()), Looks("boot", START), Thresholds(), START)
        assert [one.check for one in findings if one.verdict is not Verdict.OK] == [check]


def test_a_place_that_is_not_seen_from_here_says_nothing(node: TestNode) -> None:
    node.write("proc/mounts", "fs-1:/ /nowhere nfs4 rw 0 0\n" + ROOT.format("rw"))
    assert ask_one(str(node.root / "nowhere"))[0] == "not_asked"
    (told,) = [one for one in Watch(node).look() if one.check == "mounts"]
    assert (told.verdict, told.evidence) == (Verdict.OK, "not asked: /nowhere (No such file or directory)")


def test_names_with_spaces_and_repeated_mounts_are_understood(node: TestNode) -> None:
    node.write("proc/mounts", "fs:/ /my\\040data nfs rw 0 0\nfs:/ /again nfs rw 0 0\nautofs /auto autofs rw 0 0\nodd\n")
    assert [one.place for one in read_mounts(Host(str(node.root)), 5.0).mounts] == ["/my data"]


def test_behind_a_root_prefix_the_hosts_own_table_is_read(node: TestNode) -> None:
    node.write("proc/1/mounts", "fs:/ /of-the-host nfs rw 0 0\n")
    assert [one.place for one in read_mounts(Host(str(node.root)), 5.0).mounts] == ["/of-the-host"]
