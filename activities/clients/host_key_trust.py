"""Learns the host keys of an instance over AWS: who can write the console of an instance is the instance, or AWS."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from activities.clients.host_keys import HostKey, keys_on_console
from activities.clients.known_hosts import remember
from activities.clients.ssh_config import SshConfiguration
from activities.errors import AccessRefused, PreconditionFailed
from activities.inventory import Node

ReadConsole = Callable[[str, bool], str]
"""Gives the console output of an instance: as EC2 kept it after the last boot (False), or as it is now (True)."""


@dataclass(frozen=True)
class Trusted:
    """The keys of a node that are now known: under which name, in which file, from where, and which of them were added."""

    host: str
    file: str
    source: str
    keys: tuple[HostKey, ...]
    added: tuple[HostKey, ...]


class HostKeyTrust:
    """Knows an instance's host keys from its console."""

    def __init__(self, ssh_config: Path, read_console: ReadConsole) -> None:
        self._ssh_config = ssh_config
        self._read_console = read_console

    def keys_of(self, instance_id: str) -> tuple[HostKey, ...]:
        """Return the instance's host keys. Raises AccessRefused when its console shows none (yet), and what EC2 raises."""
        for now in (False, True):
            # Instances that are not on Nitro have no console of now.
            with suppress(PreconditionFailed):
                if keys := keys_on_console(self._read_console(instance_id, now)):
                    return keys
        raise AccessRefused(
            f"the console of {instance_id} shows no SSH host keys (yet): EC2 shows it some minutes after a boot, and cloud-init "
            f"prints them at the first boot unless ssh: emit_keys_to_console is off; look: "
            f"aws ec2 get-console-output --instance-id {instance_id}"
        )

    def trust(self, node: Node) -> Trusted:
        """Learn the keys of a node and write them where SSH looks for them; its own word is not asked for.

        Raises AccessRefused when there are none, or others are known.
        """
        target = SshConfiguration(self._ssh_config).target_of(node)
        keys = self.keys_of(node.instance_id)
        try:
            added = remember(target.known_hosts, target.known_as, keys)
        except OSError as error:
            raise AccessRefused(f"{target.known_hosts[0]}: host keys cannot be written: {error.strerror}") from error
        source = f"console output of {node.instance_id}"
        return Trusted(target.known_as, target.known_hosts[0], source, keys, added)
