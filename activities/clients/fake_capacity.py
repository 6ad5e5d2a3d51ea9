"""FakeFleet's Capacity Reservations: slots with an owner, a kind and an end; free ones follow from the instances that run."""

from __future__ import annotations

from collections.abc import Callable

from activities.capacity import Reservation
from activities.clients.fake_points import Points
from activities.errors import PreconditionFailed


class FakeCapacity:
    """A `CapacityClient`. `running` tells how many instances of the fleet run in a reservation; `others` are somebody else's."""

    def __init__(self, points: Points, running: Callable[[str], int]) -> None:
        self._points, self._running = points, running
        self.reservations: dict[str, Reservation] = {}
        self.others: dict[str, int] = {}

    def reservation(self, reservation_id: str) -> Reservation:
        return self._points.carry_out("reservation", "", lambda: self._seen(reservation_id))

    def _seen(self, reservation_id: str) -> Reservation:
        if reservation_id not in self.reservations:
            raise PreconditionFailed(f"EC2 has no Capacity Reservation {reservation_id}")
        seen = self.reservations[reservation_id]
        taken = self._running(reservation_id) + self.others.get(reservation_id, 0)
        return seen.model_copy(update={"available": max(0, seen.total - taken)})
