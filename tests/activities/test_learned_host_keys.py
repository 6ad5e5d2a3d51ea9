"""An unknown host key is believed when the instance's console shows it, and never because the network says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import asyncssh
import pytest

from activities.clients.host_key_trust import HostKeyTrust
from activities.clients.host_keys import BEGIN, END
from activities.clients.ssh_paramiko import SshAccessTo
from activities.errors import AccessRefused, PreconditionFailed, ProviderBusy
from activities.node_access import NodeAccess
from activities.settings_access import AccessSettings
from tests.activities.loopback_node import LoopbackNode, public_words


class Console:
    """The console of an instance: as kept after the boot, and as it is now. Remembers how it was asked."""

    def __init__(self) -> None:
        self.kept, self.now = "booting", ""
        self.error: Exception | None = None
        self.no_now = False
        self.asked: list[tuple[str, bool]] = []

    def show(self, *keys: str) -> None:
        self.kept = "\n".join([BEGIN, *(f"{key} root@host" for key in keys), END])

    def read(self, instance_id: str, now: bool) -> str:
        self.asked.append((instance_id, now))
        if self.error is not None:
            raise self.error
        if now and self.no_now:
            raise PreconditionFailed("UnsupportedOperation")
        return self.now if now else self.kept


@pytest.fixture
def console() -> Console:
    return Console()


@pytest.fixture
def new_access(loopback: LoopbackNode, console: Console) -> Iterator[Callable[..., NodeAccess]]:
    """Gives a fresh access to a node whose host key nobody knows yet."""
    loopback.write_configuration(known=False)
    made: list[SshAccessTo] = []

    def new(*, learn: bool = True) -> NodeAccess:
        settings = AccessSettings(ssh_config=loopback.configuration, learn_host_keys=learn)
        made.append(SshAccessTo(settings, HostKeyTrust(loopback.configuration, console.read)))
        return made[-1](loopback.node)

    yield new
    for one in made:
        one.close()


def test_a_key_that_the_console_shows_is_learned_once_and_then_known(
    loopback: LoopbackNode, console: Console, new_access: Callable[..., NodeAccess]
) -> None:
    console.show(loopback.host_key)
    assert new_access().boot_id(10.0) == loopback.boot_id
    assert loopback.known_hosts.read_text() == f"[127.0.0.1]:{loopback.port} {loopback.host_key}\n"
    assert new_access().boot_id(10.0) == loopback.boot_id
    assert new_access(learn=False).boot_id(10.0) == loopback.boot_id
    assert console.asked == [(loopback.node.instance_id, False)]


def test_a_key_is_found_on_the_console_of_now_when_the_one_of_the_boot_is_not_there_yet(
    loopback: LoopbackNode, console: Console, new_access: Callable[..., NodeAccess]
) -> None:
    console.show(loopback.host_key)
    console.kept, console.now = "", console.kept
    assert new_access().boot_id(10.0) == loopback.boot_id


def test_another_key_than_the_console_shows_is_refused_and_nothing_is_trusted(
    loopback: LoopbackNode, console: Console, new_access: Callable[..., NodeAccess]
) -> None:
    console.show(public_words(asyncssh.generate_private_key("ssh-ed25519")))
    access = new_access()
    for _ in range(3):
        with pytest.raises(AccessRefused, match=r"is not this instance: it offers .*SHA256:.* console shows .*SHA256:"):
            access.boot_id(10.0)
    assert loopback.known_hosts.read_text() == ""
    assert loopback.commands == []
    assert len(console.asked) == 1


def test_a_host_with_several_keys_proves_itself_by_the_one_that_the_console_shows(
    loopback: LoopbackNode, console: Console, new_access: Callable[..., NodeAccess]
) -> None:
    shown = asyncssh.generate_private_key("ecdsa-sha2-nistp256")
    loopback.down()
    loopback.other_host_keys.append(shown)
    loopback.up()
    console.show(public_words(shown))
    assert new_access().boot_id(10.0) == loopback.boot_id
    assert loopback.known_hosts.read_text() == f"[127.0.0.1]:{loopback.port} {public_words(shown)}\n"


def test_a_console_without_keys_is_asked_once_a_minute_and_the_error_says_what_to_do(
    loopback: LoopbackNode, console: Console, new_access: Callable[..., NodeAccess]
) -> None:
    console.no_now = True
    access = new_access()
    for _ in range(3):
        with pytest.raises(AccessRefused, match=r"not known .*shows no SSH host keys .*hotspare trust node-1.*ssh-keyscan"):
            access.boot_id(10.0)
    assert console.asked == [(loopback.node.instance_id, False), (loopback.node.instance_id, True)]


def test_when_aws_does_not_answer_the_access_is_broken_and_not_the_node(
    console: Console, new_access: Callable[..., NodeAccess]
) -> None:
    console.error = ProviderBusy("EC2 does not answer")
    with pytest.raises(AccessRefused, match="could not be learned over AWS: EC2 does not answer"):
        new_access().boot_id(10.0)


def test_switched_off_an_unknown_key_is_an_error_that_says_how_to_add_it(
    loopback: LoopbackNode, console: Console, new_access: Callable[..., NodeAccess]
) -> None:
    console.show(loopback.host_key)
    with pytest.raises(AccessRefused, match=r"not known .*hotspare trust node-1.*ssh-keyscan"):
        new_access(learn=False).boot_id(10.0)
    assert console.asked == []


def test_a_changed_key_is_an_error_though_the_console_shows_it(
    loopback: LoopbackNode, console: Console, new_access: Callable[..., NodeAccess]
) -> None:
    loopback.write_configuration(known=True)
    before = loopback.known_hosts.read_text()
    loopback.down()
    loopback.change_host_key()
    loopback.up()
    console.show(loopback.host_key)
    with pytest.raises(AccessRefused, match=r"has changed.*ssh-keygen -R .*hotspare trust node-1"):
        new_access().boot_id(10.0)
    with pytest.raises(AccessRefused, match=r"has changed.*ssh-keygen -R"):
        HostKeyTrust(loopback.configuration, console.read).trust(loopback.node)
    assert loopback.known_hosts.read_text() == before


def test_a_file_that_cannot_be_written_does_not_keep_a_proven_node_away(
    loopback: LoopbackNode, console: Console, new_access: Callable[..., NodeAccess]
) -> None:
    console.show(loopback.host_key)
    nowhere = loopback.folder / "not-a-folder"
    nowhere.write_text("")
    text = loopback.configuration.read_text().replace(str(loopback.known_hosts), str(nowhere / "known_hosts"))
    loopback.configuration.write_text(text)
    assert new_access().boot_id(10.0) == loopback.boot_id


def test_a_configuration_written_while_the_access_is_open_is_taken_up(loopback: LoopbackNode) -> None:
    right = loopback.configuration.read_text()
    loopback.configuration.write_text("Host node-1\n  HostName no-such-host.invalid\n")
    access_to = SshAccessTo(AccessSettings(ssh_config=loopback.configuration))
    with pytest.raises(AccessRefused, match="not known here"):
        access_to(loopback.node).boot_id(10.0)
    loopback.configuration.write_text("Match\n")
    with pytest.raises(AccessRefused, match="not known here"):
        access_to(loopback.node).boot_id(10.0)
    loopback.configuration.write_text(right)
    assert access_to(loopback.node).boot_id(10.0) == loopback.boot_id
    access_to.close()
