"""The agent process: one follower of this machine's own kernel log, whose reports go to the intake.

What the intake does not take stays in the log: the place up to which all is reported lies on the node's disk, by boot, and moves
only when the intake has confirmed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from activities.inventory import Node
from activities.node_access import NodeAccess
from checks.catalog import Override
from checks.host import Host
from workers.agent.local_access import LocalAccess
from workers.agent.sender import IntakeSender
from workers.sections import WatcherSettings
from workers.watcher.cursors import CursorFile
from workers.watcher.follow import Follower, SendReport

PRODUCT = "/sys/devices/virtual/dmi/id/product_name"
"""On EC2 the firmware says the instance type."""

SIGN_OF_LIFE_S = 0.5


@dataclass(frozen=True)
class AgentOptions:
    """What the DaemonSet tells the agent. `node` is its name in Kubernetes; `folder` lies on the node and outlives the pod."""

    node: str
    intake_url: str
    token_file: Path
    folder: Path
    ca_file: Path | None = None


class Agent:
    """Follows until told to stop."""

    def __init__(
        self,
        options: AgentOptions,
        settings: WatcherSettings | None = None,
        *,
        send: SendReport | None = None,
        host: Host | None = None,
        overrides: Mapping[str, Override] | None = None,
    ) -> None:
        host = host or Host()
        self._node = Node(instance_id=options.node, name=options.node, instance_type=host.read_text(PRODUCT) or "")
        self._access = LocalAccess(options.node, host)
        self._stop = threading.Event()
        self._follower = Follower(
            self._node,
            self._access_to,
            send or IntakeSender(options.intake_url, options.token_file, options.ca_file),
            CursorFile(options.folder / "cursor.json"),
            settings or WatcherSettings(),
            self._stop,
            overrides=overrides,
        )

    @property
    def connected(self) -> bool:
        """Whether the log is being read."""
        return self._follower.connected

    def stop(self) -> None:
        """End `run`; safe in a signal handler."""
        self._stop.set()

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Follow until `stop`; `ready` is called once the log is read for the first time."""
        self._follower.start()
        announced = False
        while not self._stop.wait(SIGN_OF_LIFE_S):
            if not announced and self.connected:
                ready()
                announced = True
        self._follower.join(timeout=5)

    def _access_to(self, node: Node) -> NodeAccess:
        return self._access
