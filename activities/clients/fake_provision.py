"""FakeFleet's launches and terminations: a new machine for each client token, in a reservation where one is named."""

from __future__ import annotations

from collections.abc import Callable

from activities.capacity import CapacityClient
from activities.clients.fake_points import Points
from activities.errors import NoCapacity
from activities.provisioning import Launch


class FakeProvision:
    """A `ProvisionClient`. `add` makes a machine of the fleet and returns its instance id; `end` ends one."""

    def __init__(
        self, points: Points, capacity: CapacityClient, add: Callable[[Launch], str], end: Callable[[str], None]
    ) -> None:
        self._points, self._capacity, self._add, self._end = points, capacity, add, end
        self.launches: dict[str, tuple[Launch, str]] = {}

    def launch(self, wanted: Launch, token: str) -> str:
        return self._points.carry_out("launch", "", lambda: self._once(wanted, token))

    def terminate(self, instance_id: str) -> None:
        self._points.carry_out("terminate", "", lambda: self._end(instance_id))

    def _once(self, wanted: Launch, token: str) -> str:
        if token in self.launches:
            return self.launches[token][1]
        if wanted.reservation and not self._capacity.reservation(wanted.reservation).available:
            raise NoCapacity(f"EC2: launch: ReservationCapacityExceeded: {wanted.reservation} has no free slot")
        self.launches[token] = (wanted, self._add(wanted))
        return self.launches[token][1]
