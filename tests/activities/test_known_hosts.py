"""A known_hosts file gains keys and never loses or changes one, whoever writes at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import asyncssh
import paramiko
import pytest

from activities.clients.host_keys import HostKey
from activities.clients.known_hosts import known_keys, remember
from activities.errors import AccessRefused
from tests.activities.loopback_node import public_words

TREE = Path(__file__).resolve().parents[2]
NAME = "[10.0.0.7]:2222"
MANY = """
import sys
from activities.clients.host_keys import HostKey
from activities.clients.known_hosts import remember
file, kind, blob, who = sys.argv[1:]
for number in range(25):
    remember([file], f"host-{who}-{number}", [HostKey(kind, blob)])
"""


def made(kind: str = "ssh-ed25519") -> HostKey:
    return HostKey(*public_words(asyncssh.generate_private_key(kind)).split())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ssh" / "known_hosts"


def test_keys_are_added_once_to_a_new_private_file(file: Path) -> None:
    key, other = made(), made("ecdsa-sha2-nistp256")
    assert remember([str(file)], NAME, [key, other]) == (key, other)
    assert remember([str(file)], NAME, [key, other]) == ()
    assert file.read_text() == f"{NAME} {key.kind} {key.blob}\n{NAME} {other.kind} {other.blob}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert known_keys([str(file)], NAME) == (key, other)
    assert known_keys([str(file)], "10.0.0.7") == ()


def test_what_was_in_the_file_stays_even_lines_that_nobody_understands(file: Path) -> None:
    file.parent.mkdir()
    before = b"# comment\n\xff\xfe odd\nhost-1 ssh-rsa not-base64\n@cert-authority *.example.com ssh-rsa AAAA\nlast line"
    file.write_bytes(before)
    file.chmod(0o644)
    key = made()
    remember([str(file)], NAME, [key])
    assert file.read_bytes() == before + f"\n{NAME} {key.kind} {key.blob}\n".encode()
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_different_key_is_never_replaced_and_the_message_says_how_to_remove_the_old_one(file: Path) -> None:
    remember([str(file)], NAME, [made()])
    before = file.read_text()
    with pytest.raises(AccessRefused, match=r"has changed.*ssh-keygen -R '\[10.0.0.7\]:2222' -f .*known_hosts"):
        remember([str(file)], NAME, [made()])
    with pytest.raises(AccessRefused, match="has changed"):
        remember([str(file)], NAME, [made("ecdsa-sha2-nistp256")])
    assert file.read_text() == before


def test_a_key_of_another_type_is_added_beside_one_that_is_confirmed(file: Path) -> None:
    known, new = made(), made("ecdsa-sha2-nistp256")
    remember([str(file)], NAME, [known])
    assert remember([str(file)], NAME, [known, new]) == (new,)


def test_a_different_key_in_the_file_of_the_whole_machine_is_a_changed_key_too(file: Path, tmp_path: Path) -> None:
    everyone = tmp_path / "ssh_known_hosts"
    key = made()
    everyone.write_text(f"{NAME} {key.kind} {key.blob}\n")
    with pytest.raises(AccessRefused, match="has changed"):
        remember([str(file), str(everyone)], NAME, [made()])
    assert remember([str(file), str(everyone)], NAME, [key]) == ()


def test_a_host_that_is_known_by_a_hash_is_known(file: Path) -> None:
    file.parent.mkdir()
    key = made()
    file.write_text(f"{paramiko.HostKeys.hash_host(NAME)} {key.kind} {key.blob}\n|1|odd {key.kind} {key.blob}\n")
    assert known_keys([str(file)], NAME) == (key,)
    assert known_keys([str(file)], "another") == ()


def test_a_revoked_key_is_neither_known_nor_learned(file: Path) -> None:
    file.parent.mkdir()
    key = made()
    file.write_text(f"{NAME} {key.kind} {key.blob}\n@revoked * {key.kind} {key.blob}\n")
    assert known_keys([str(file)], NAME) == ()
    with pytest.raises(AccessRefused, match="revoked"):
        remember([str(file)], NAME, [key])


def test_a_link_stays_a_link_and_a_device_is_refused(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    remember([str(link)], NAME, [made()])
    assert link.is_symlink()
    assert file.is_file()
    with pytest.raises(AccessRefused, match="UserKnownHostsFile"):
        remember(["/dev/null"], NAME, [made()])
    assert not Path("/dev/null").is_file()


def test_processes_that_add_keys_at_the_same_time_lose_none(file: Path) -> None:
    key = made()
    writers = [
        subprocess.Popen([sys.executable, "-c", MANY, str(file), key.kind, key.blob, str(who)], cwd=TREE, env={"PYTHONPATH": "."})
        for who in range(3)
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    names = sorted(line.split()[0] for line in file.read_text().splitlines())
    assert names == sorted(f"host-{who}-{number}" for who in range(3) for number in range(25))
    assert sorted(entry.name for entry in file.parent.iterdir()) == ["known_hosts", "known_hosts.lock"]
