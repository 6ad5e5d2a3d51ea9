"""Reads the OpenSSH client configuration: where a node is reached, as whom, with which keys, and which host keys are known."""

from __future__ import annotations

import getpass
import glob
import io
from dataclasses import dataclass
from pathlib import Path

import paramiko

from activities.errors import AccessRefused, BadInput
from activities.inventory import Node

DEFAULT_PORT = 22
GLOBAL_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
INCLUDE_DEPTH = 8
"""Include files within include files. Source: OpenSSH allows 16; who needs more than 8 has a loop."""


@dataclass(frozen=True)
class SshTarget:
    """One host as the configuration describes it. `jumps` are the aliases of ProxyJump, first hop first."""

    alias: str
    host: str
    port: int
    user: str
    identity_files: tuple[str, ...]
    identities_only: bool
    known_hosts: tuple[str, ...]
    jumps: tuple[str, ...] = ()
    proxy_command: str = ""

    @property
    def known_as(self) -> str:
        """The host's name in a known_hosts file."""
        return self.host if self.port == DEFAULT_PORT else f"[{self.host}]:{self.port}"


class SshConfiguration:
    """The configuration file with what it includes, read once. A file that does not exist is an empty one."""

    def __init__(self, file: Path) -> None:
        self._file = file.expanduser()
        self._read: dict[Path, tuple[int, int]] = {}
        try:
            self._config = paramiko.SSHConfig.from_file(io.StringIO(self._with_includes(self._file)))
        except Exception as error:  # paramiko raises several kinds, all about the text
            raise BadInput(f"{self._file}: not a readable OpenSSH configuration: {error}") from error

    def target_of(self, node: Node) -> SshTarget:
        """Return how to reach a node: by the first of its names that the configuration has, else by its host name or address."""
        named = self._config.get_hostnames()
        candidates = [name for name in (node.host, node.name, node.instance_id, node.ip) if name]
        alias = next((name for name in candidates if name in named), "") or node.host or node.ip or node.name
        return self.target(alias)

    def target(self, alias: str) -> SshTarget:
        """Return the settings of one alias."""
        try:
            found = self._config.lookup(alias)
        except Exception as error:  # as above: a Match block that cannot be evaluated, a port that is no number
            raise AccessRefused(f"{self._file}: the settings of {alias} cannot be read: {error}") from error
        jump = found.get("proxyjump", "")
        return SshTarget(
            alias=alias,
            host=found.get("hostname", alias),
            port=int(found.get("port", DEFAULT_PORT)),
            user=found.get("user", "") or getpass.getuser(),
            identity_files=tuple(path for path in map(_expanded, found.get("identityfile", [])) if Path(path).is_file()),
            identities_only=found.get("identitiesonly", "no").lower() == "yes",
            known_hosts=_known_hosts(found.get("userknownhostsfile", "~/.ssh/known_hosts")),
            jumps=tuple(part.strip() for part in jump.split(",") if part.strip()) if jump.lower() != "none" else (),
            proxy_command="" if found.get("proxycommand", "none").lower() == "none" else found["proxycommand"],
        )

    def has_changed(self) -> bool:
        """Whether one of the files has changed since it was read, or since this was asked last."""
        now = {file: _stamp(file) for file in self._read}
        changed, self._read = now != self._read, now
        return changed

    def _with_includes(self, file: Path, depth: int = 0) -> str:
        """Return the text with Include lines replaced by the files they name; paramiko does not know them."""
        self._read[file] = _stamp(file)
        if not file.is_file() or depth > INCLUDE_DEPTH:
            return ""
        lines = []
        for line in file.read_text().splitlines():
            words = line.replace("=", " ", 1).split()
            if words and words[0].lower() == "include":
                for pattern in words[1:]:
                    place = Path(pattern.strip('"')).expanduser()
                    full = place if place.is_absolute() else file.parent / place
                    lines += [self._with_includes(Path(name), depth + 1) for name in sorted(glob.glob(str(full)))]
            else:
                lines.append(line)
        return "\n".join(lines) + "\n"


def _stamp(file: Path) -> tuple[int, int]:
    """What changes when a file is written."""
    try:
        seen = file.stat()
    except OSError:
        return (0, 0)
    return (seen.st_mtime_ns, seen.st_size)


def _known_hosts(configured: str) -> tuple[str, ...]:
    return (*(_expanded(path) for path in configured.split()), GLOBAL_KNOWN_HOSTS)


def _expanded(path: str) -> str:
    return str(Path(path.strip('"')).expanduser())
