"""A head node and GPU-less nodes in network namespaces, each with a real OpenSSH server; all of it ends with its owner."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from infra.lab.namespaces.network import REMOVAL, Network
from infra.lab.namespaces.tools import NotHere, compile_all_reduce, program, tell
from infra.lab.owner_guard import OwnerGuard

HEAD = "head"
UP_LIMIT_S = 60.0
"""Longest wait for the SSH servers. A lab value: they take less than a second on an idle machine."""

# A name, addresses by name and a /run of its own, then the server. Nothing of it is seen outside of the namespace.
_NODE = """hostname "$1" && mount --bind "$2/hosts" /etc/hosts && mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd || exit 1
exec "$3" -D -e -f "$2/$1/sshd_config"
"""

_SSHD = """Port 22
ListenAddress {address}
HostKey {folder}/{name}/host_key
PidFile none
UsePAM no
StrictModes no
UseDNS no
AuthorizedKeysFile {folder}/login.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
MaxStartups 100
MaxSessions 100
"""

_CLIENT = """Host {name}
  HostName {address}
  User root
  IdentityFile {folder}/login
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
  LogLevel ERROR
"""


class Namespaces:
    """An async context manager. `network` makes links slow; `ssh_config` reaches every node, from here and from the head node."""

    def __init__(self, nodes: int) -> None:
        self.names = [f"node-{number}" for number in range(1, nodes + 1)]
        self.network = Network([HEAD, *self.names])
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.network.name}-"))
        """In a short path: MPI's sockets lie there, and a socket's path has at most 107 characters."""
        self.ssh_config = self.folder / "ssh_config"
        self._servers: dict[str, asyncio.subprocess.Process] = {}
        self._guard = OwnerGuard(f'{REMOVAL}rm -rf "$2"\n', [self.network.name, str(self.folder)])

    async def __aenter__(self) -> Namespaces:
        try:
            await self._guard.watch([])
            await self.network.make()
            await self._write_files()
            self._program = await compile_all_reduce(self.folder)
            for name in self.network.nodes:
                await self.start_server(name)
            async with asyncio.timeout(UP_LIMIT_S):
                for name in self.network.nodes:
                    await self._answers(name)
        except BaseException:
            await self._remove()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._remove()

    async def start_server(self, name: str) -> None:
        """Start the SSH server of a node."""
        with (self.folder / name / "sshd.log").open("ab") as log:
            self._servers[name] = await asyncio.create_subprocess_exec(
                *(program("ip"), "netns", "exec", self.network.namespace(name), program("unshare"), "--uts", "--mount"),
                *("sh", "-c", _NODE, "sh", name, str(self.folder), program("sshd")),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def end_server(self, name: str) -> None:
        """End the SSH server of a node: nobody logs in any more."""
        server = self._servers.pop(name)
        with contextlib.suppress(ProcessLookupError):
            server.kill()
        await server.wait()

    def command(self, size: str = "1M", iterations: int = 3) -> list[str]:
        """The `burn_in.command` of these nodes: Open MPI from the head node, over their links alone, in a ring."""
        network = str(self.network.subnet)
        options = {
            "pml": "ob1",
            "btl": "tcp,self",
            "btl_tcp_if_include": network,
            "oob_tcp_if_include": network,
            "plm_rsh_no_tree_spawn": "1",
            "plm_rsh_agent": f"ssh -F {self.ssh_config}",
            "orte_tmpdir_base": str(self.folder),
            "mpi_yield_when_idle": "1",
            "coll_libnbc_iallreduce_algorithm": "1",
        }
        words = [word for name, value in options.items() for word in ("--mca", name, value)]
        sizes = ["-b", size, "-e", size, "-f", "2", "-g", "1", "-n", str(iterations), "-w", "1"]
        return ["mpirun", "--allow-run-as-root", "-np", "{ranks}", "--host", "{hosts}", *words, str(self._program), *sizes]

    async def running(self, program: str) -> dict[str, list[int]]:
        """Processes of a program, by the node that they run on; nodes without one are left out."""
        found = {name: await self.network.processes(name) for name in self.network.nodes}
        mine = {name: [pid for pid in pids if _name_of(pid) == program[:15]] for name, pids in found.items()}
        return {name: pids for name, pids in mine.items() if pids}

    async def _write_files(self) -> None:
        await _key(self.folder / "login")
        known, client = [], []
        for name in self.network.nodes:
            place = {"name": name, "folder": self.folder, "address": self.network.address[name]}
            (self.folder / name).mkdir()
            await _key(self.folder / name / "host_key")
            (self.folder / name / "sshd_config").write_text(_SSHD.format(**place))
            client.append(_CLIENT.format(**place))
            known.append(f"{place['address']} {(self.folder / name / 'host_key.pub').read_text()}")
        self.ssh_config.write_text("".join(client))
        (self.folder / "known_hosts").write_text("".join(known))
        hosts = [f"{address}\t{name}\n" for name, address in self.network.address.items()]
        (self.folder / "hosts").write_text("".join(["127.0.0.1\tlocalhost\n", *hosts]))

    async def _answers(self, name: str) -> None:
        """Return when the node's SSH server greets. Raises NotHere when it ended instead."""
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(self.network.address[name], 22)
                greeting = await reader.readline()
                writer.close()
                if greeting.startswith(b"SSH-"):
                    return
            if self._servers[name].returncode is not None:
                raise NotHere(f"the SSH server of {name} ended: {(self.folder / name / 'sshd.log').read_text()[-300:]}")
            await asyncio.sleep(0.05)

    async def _remove(self) -> None:
        await self.network.remove()
        for server in self._servers.values():
            await server.wait()
        await self._guard.close()
        shutil.rmtree(self.folder, ignore_errors=True)


async def _key(file: Path) -> None:
    await tell("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(file))


def _name_of(pid: int) -> str:
    """The program's name as the kernel keeps it, at most 15 characters; empty when the process has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
