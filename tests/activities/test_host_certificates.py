"""Host certificates: an authority that known_hosts names vouches for a node's key, its name and a time; nobody else does."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from activities.clients.host_certificates import Certificate, NotReadable, read_certificate, why_refused
from activities.clients.host_keys import HostKey
from activities.clients.known_hosts import authorities
from activities.clients.ssh_paramiko import SshAccessTo
from activities.errors import AccessRefused
from activities.settings_access import AccessSettings
from tests.activities.loopback_node import LoopbackNode, public_words

MADE_BY_OPENSSH = (
    "AAAAHHNzaC1yc2EtY2VydC12MDFAb3BlbnNzaC5jb20AAAAgbHCkwRMjC+wWujT54hvr2bIF+OhLBho1lsp8TfErGZ8AAAADAQABAAABAQC9tTAT"
    "HlTDAfVByn6in1Rjs1YvljYXEQu0UFc+xDA6k1OCSoIXHT5TbCs1uAjsSzVG4W8RRIUW2H/sy321ARRWisQdea7XXHgy3alFLz115yF4I7eJmAZ0"
    "Nvn5tkAj/yay2vb6+qdr2gNp/EjsinIcdvB3Gp+cx7FeMJnNUBUVTu66YFE6TRhG6ka6CmgIJMMYxDkDuF6kdWJLhzm0dkm2ZrnAnFbH9MA1bLMj"
    "PcBgQv229oobd017coLXbwYxdy8qYrBQVRclVFyee5kKzm5SvmACQyFJicdAKB11Dxx6UxU9ag60NEwMcvTz+sJMHFGi8EAqCWLgPkJNYs2Fe2gd"
    "AAAAAAAAAAAAAAACAAAAEm1hZGUtYnktc3NoLWtleWdlbgAAABcAAAAGbm9kZS0xAAAACTEwLjAuMC4xMQAAAAAAAAAA//////////8AAAAAAAAA"
    "AAAAAAAAAAAzAAAAC3NzaC1lZDI1NTE5AAAAIFyXUuS71FC4SICgRMbi46ixJ7CU621meuRpLfKKHb/sAAAAUwAAAAtzc2gtZWQyNTUxOQAAAEC1"
    "gVC0CUnZwxPLBRGguZz2pjiv0GW1Aq3MdUTwumN7cCv3KzykE0vG0gPUjaoCgcABiz/oQxSUG4xTpmpOQ7sA"
)
"""Of `ssh-keygen -s ca -h -I made-by-ssh-keygen -n node-1,10.0.0.11 -V always:forever key.pub`, OpenSSH 9.2."""
ITS_AUTHORITY = HostKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIFyXUuS71FC4SICgRMbi46ixJ7CU621meuRpLfKKHb/s")

KINDS = ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp521", "ssh-rsa"]


@pytest.fixture
def authority() -> asyncssh.SSHKey:
    return asyncssh.generate_private_key("ssh-ed25519")


@pytest.fixture
def access_to(loopback: LoopbackNode) -> Iterator[SshAccessTo]:
    made = SshAccessTo(AccessSettings(ssh_config=loopback.configuration))
    yield made
    made.close()


def serve(node: LoopbackNode, signer: asyncssh.SSHKey, **terms: Any) -> None:
    """Restart the node with a certificate."""
    node.down()
    node.sign_host_key(signer, **{"principals": ["127.0.0.1"], **terms})
    node.up()


def trust(node: LoopbackNode, *lines: str) -> None:
    """Write the known_hosts file."""
    node.known_hosts.write_text("".join(f"{line}\n" for line in lines))


def line(key: asyncssh.SSHKey, pattern: str = "127.0.0.*", marker: str = "@cert-authority") -> str:
    return f"{marker} {pattern} {public_words(key)}"


@pytest.mark.parametrize("pattern", ["127.0.0.*", "*", "[127.0.0.1]:*", "10.*,127.0.0.1"])
def test_a_node_is_believed_by_its_certificate_and_no_key_of_it_is_known(
    loopback: LoopbackNode, access_to: SshAccessTo, authority: asyncssh.SSHKey, pattern: str
) -> None:
    serve(loopback, authority)
    trust(loopback, line(authority, pattern))
    assert access_to(loopback.node).boot_id(10.0) == loopback.boot_id
    assert str(loopback.port) not in loopback.known_hosts.read_text()


def test_a_replaced_node_with_a_new_certificate_is_believed_though_its_old_key_was_known(
    loopback: LoopbackNode, access_to: SshAccessTo, authority: asyncssh.SSHKey
) -> None:
    known = f"[127.0.0.1]:{loopback.port} {loopback.host_key}"
    loopback.change_host_key()
    serve(loopback, authority)
    trust(loopback, known, line(authority))
    assert access_to(loopback.node).boot_id(10.0) == loopback.boot_id


def test_a_node_without_a_certificate_is_still_believed_by_its_known_key_and_by_no_other(
    loopback: LoopbackNode, access_to: SshAccessTo, authority: asyncssh.SSHKey
) -> None:
    trust(loopback, f"[127.0.0.1]:{loopback.port} {loopback.host_key}", line(authority))
    assert access_to(loopback.node).boot_id(10.0) == loopback.boot_id
    loopback.down()
    loopback.change_host_key()
    loopback.up()
    with pytest.raises(AccessRefused, match="has changed"):
        access_to(loopback.node).boot_id(10.0)
    trust(loopback, line(authority))
    with pytest.raises(AccessRefused, match="is not known"):
        access_to(loopback.node).boot_id(10.0)


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"principals": ["node-9", "10.0.0.9"]}, r"it is for node-9, 10\.0\.0\.9, not for 127\.0\.0\.1"),
        ({"principals": []}, "names no host"),
        ({"valid_after": 1_000_000, "valid_before": 2_000_000}, "not valid now"),
        ({"valid_after": time.time() + 3600, "valid_before": time.time() + 7200}, "not valid now"),
    ],
    ids=["for another host", "for any host", "expired", "not yet valid"],
)
def test_a_certificate_counts_for_its_host_and_its_time(
    loopback: LoopbackNode, access_to: SshAccessTo, authority: asyncssh.SSHKey, terms: dict[str, Any], why: str
) -> None:
    serve(loopback, authority, **terms)
    trust(loopback, line(authority))
    with pytest.raises(AccessRefused, match=why):
        access_to(loopback.node).boot_id(10.0)
    assert loopback.commands == []


def test_a_certificate_of_another_authority_is_refused(
    loopback: LoopbackNode, access_to: SshAccessTo, authority: asyncssh.SSHKey
) -> None:
    serve(loopback, asyncssh.generate_private_key("ssh-ed25519"))
    trust(loopback, line(authority))
    with pytest.raises(AccessRefused, match="no authority for this host"):
        access_to(loopback.node).boot_id(10.0)


@pytest.mark.parametrize("what", ["authority", "key"])
def test_what_is_revoked_is_not_believed(
    loopback: LoopbackNode, access_to: SshAccessTo, authority: asyncssh.SSHKey, what: str
) -> None:
    serve(loopback, authority)
    revoked = line(authority, "*", "@revoked") if what == "authority" else f"@revoked * {loopback.host_key}"
    trust(loopback, line(authority), revoked)
    with pytest.raises(AccessRefused, match="is revoked" if what == "key" else "not known"):
        access_to(loopback.node).boot_id(10.0)


def certificate(signer: asyncssh.SSHKey, kind: str = "ssh-ed25519", **terms: Any) -> bytes:
    made = signer.generate_host_certificate(asyncssh.generate_private_key(kind), "id", **{"principals": ["host-1"], **terms})
    return base64.b64decode(made.export_certificate().split()[1])


def key_of(key: asyncssh.SSHKey) -> HostKey:
    return HostKey(*public_words(key).split())


@pytest.mark.parametrize("signer", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_key_may_sign_every_kind(signer: str, kind: str) -> None:
    authority = asyncssh.generate_private_key(signer)
    seen = read_certificate(certificate(authority, kind))
    assert why_refused(seen, "HOST-1", [key_of(authority)]) == ""
    assert seen.key.kind == kind


def test_a_certificate_made_by_openssh_is_read_and_believed() -> None:
    seen = read_certificate(base64.b64decode(MADE_BY_OPENSSH))
    assert (seen.key_id, seen.principals, seen.key.kind) == ("made-by-ssh-keygen", ("node-1", "10.0.0.11"), "ssh-rsa")
    assert why_refused(seen, "10.0.0.11", [ITS_AUTHORITY]) == ""
    assert why_refused(seen, "10.0.0.12", [ITS_AUTHORITY])


def test_no_byte_of_a_certificate_can_be_changed(authority: asyncssh.SSHKey) -> None:
    blob = certificate(authority)
    for place in range(len(blob)):
        changed = bytearray(blob)
        changed[place] ^= 1
        try:
            seen = read_certificate(bytes(changed))
        except NotReadable:
            continue
        assert why_refused(seen, "host-1", [key_of(authority)]), place


def test_no_beginning_of_a_certificate_is_one(authority: asyncssh.SSHKey) -> None:
    blob = certificate(authority)
    for end in range(len(blob)):
        with pytest.raises(NotReadable):
            read_certificate(blob[:end])
    with pytest.raises(NotReadable):
        read_certificate(blob + b"x")


def test_a_users_certificate_and_one_with_critical_options_prove_no_host(authority: asyncssh.SSHKey) -> None:
    user = authority.generate_user_certificate(
        asyncssh.generate_private_key("ssh-ed25519"), "id", principals=["host-1"], force_command="true"
    )
    seen = read_certificate(base64.b64decode(user.export_certificate().split()[1]))
    assert "of a user" in why_refused(seen, "host-1", [key_of(authority)])
    host: Certificate = read_certificate(certificate(authority))
    assert "critical" in why_refused(Certificate(**{**vars(host), "critical": seen.critical}), "host-1", [key_of(authority)])


def test_a_signature_over_sha_1_proves_nothing() -> None:
    authority = asyncssh.generate_private_key("ssh-rsa")
    weak = read_certificate(certificate(authority, sig_alg="ssh-rsa"))
    assert "SHA-1" in why_refused(weak, "host-1", [key_of(authority)])


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ("*.cluster.example", True),
        ("*.cluster.example,!head.cluster.example", True),
        ("*.cluster.example,!node-?.cluster.example", False),
        ("NODE-1.cluster.example", True),
        ("[node-1.cluster.example]:2222", True),
        ("[*.cluster.example]:2222", True),
        ("[*.cluster.example]:22", False),
        ("cluster.example", False),
    ],
)
def test_an_authority_speaks_for_the_hosts_of_its_patterns(
    tmp_path: Path, authority: asyncssh.SSHKey, patterns: str, expected: bool
) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(line(authority, patterns) + "\n")
    names = ("[node-1.cluster.example]:2222", "node-1.cluster.example")
    assert authorities([str(file)], names) == ((key_of(authority),) if expected else ())
