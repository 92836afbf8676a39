"""A semaphore: so many may hold it at once, each with a slot of its own.

A slot is an ordinary resource, ``pool/0`` and so on, with its own token. It is not a number that the store keeps: all
that use a semaphore must say the same number of slots, and the highest that anybody says counts.

Who waits queues up at one resource, ``pool/gate``, so that the queue is one and fair. The first one there has the gate,
and it alone stands in the queues of the slots, in all of them: whichever is freed is kept for it, and it is called. It
takes that slot, and opens the gate for the next. Nobody polls; and who dies on the way leaves a lease on the gate that
runs out, and places in queues that do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple

from lessor.core.lease import check_resource
from lessor.errors import ConfigError, LeaseHeld, QueueFull
from lessor.patterns.opening import Opening
from lessor.patterns.patience import Patience
from lessor.patterns.ports import A, L

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Unpack

    from lessor.core.timing import Duration, Timing
    from lessor.core.view import Record
    from lessor.patterns.options import Options
    from lessor.patterns.ports import AsyncLeases, Leases

MOST_SLOTS = 1000
AT_THE_GATE = ("priority", "queue_limit")
"""What is said about waiting, which is done there."""
AT_BOTH = ("parent", "metadata", "cancel")


class Slots(NamedTuple):
    """The names of a semaphore, and what follows from who holds them."""

    name: str
    slots: tuple[str, ...]

    @classmethod
    def of(cls, name: str, slots: int) -> Slots:
        """Return the names, if there can be so many."""
        given: object = slots
        if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MOST_SLOTS:
            raise ConfigError(f"a semaphore has 1 to {MOST_SLOTS} slots, and not {slots!r}")
        return cls(check_resource(name), tuple(check_resource(f"{name}/{number}") for number in range(slots)))

    @property
    def gate(self) -> str:
        """Where those who wait queue up."""
        return f"{self.name}/gate"

    def free(self, records: Sequence[Record | None], start: float) -> list[str]:
        """Return the free slots, beginning at some place, so that not all try the same one first."""
        free = [slot for slot, record in zip(self.slots, records, strict=True) if record is None]
        at = int(start * len(free))
        return free[at:] + free[:at]

    def taken(self, records: Sequence[Record | None]) -> LeaseHeld:
        """Return the error for one that got no slot: it names the lease whose slot may be free first."""
        held = [record for record in records if record is not None]
        if not held:
            return LeaseHeld(self.name)
        soonest = min(held, key=lambda record: record.remaining)
        return LeaseHeld(
            self.name,
            holder=soonest.holder,
            token=soonest.token,
            remaining=soonest.remaining,
            closed=soonest.closed,
        )


def at_gate(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what goes for the gate."""
    return {name: value for name, value in options.items() if name in AT_THE_GATE + AT_BOTH}


def at_slot(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what goes for the slot."""
    return {name: value for name, value in options.items() if name not in AT_THE_GATE}


class BaseSemaphore:
    """What both semaphores have in common."""

    def __init__(self, client: Any, name: str, slots: int) -> None:
        self._client = client
        self._slots = Slots.of(name, slots)

    @property
    def name(self) -> str:
        """Its name: the slots' names start with it."""
        return self._slots.name

    @property
    def slots(self) -> int:
        """How many may hold it at once."""
        return len(self._slots.slots)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} with {self.slots} slots>"


class Semaphore(BaseSemaphore, Generic[L]):
    """So many may hold it at once. The number is that of whoever says the highest, and no secret of the store's."""

    def __init__(self, client: Leases[L], name: str, slots: int) -> None:
        super().__init__(client, name, slots)

    def acquire(
        self, ttl: Duration | Timing | None = 30.0, wait: Duration | None = None, **options: Unpack[Options]
    ) -> L:
        """Wait for a slot, in order of arrival, and return the lease on it; or raise `LeaseHeld`.

        The arguments are those of ``client.acquire``. With ``wait=0``, and in ``try_acquire``, who waits is not asked.
        """
        client, patience = self._client, Patience(wait, self._client._host.clock)
        if patience.none:
            lease, records = self._look(ttl, options)
            if lease is None:
                raise self._slots.taken(records)
            return lease
        turn = self._queue_up(ttl, wait, options)
        try:
            lease, records = self._look(ttl, options)
            if lease is None:
                lease = self._wait(ttl, patience, options)
            if lease is None:
                raise self._slots.taken(records)
            return lease
        finally:
            client.drop(turn)

    def try_acquire(self, ttl: Duration | Timing | None = 30.0, **options: Unpack[Options]) -> L | None:
        """Return the lease on a slot if one is free now, else None."""
        return self._look(ttl, options)[0]

    def holders(self) -> Sequence[Record]:
        """Return who holds the slots."""
        return [record for record in self._client.get_each(self._slots.slots) if record is not None]

    def _queue_up(self, ttl: Duration | Timing | None, wait: Duration | None, options: Mapping[str, Any]) -> L:
        """Wait for the gate, and return the lease on it."""
        try:
            turn: L = self._client.acquire(self._slots.gate, ttl, wait, **at_gate(options))
        except LeaseHeld as error:
            if isinstance(error, QueueFull):
                raise
            raise self._slots.taken(self._client.get_each(self._slots.slots)) from error
        return turn

    def _look(
        self, ttl: Duration | Timing | None, options: Mapping[str, Any]
    ) -> tuple[L | None, Sequence[Record | None]]:
        """Take a slot that is free, and not kept for somebody else."""
        records = self._client.get_each(self._slots.slots)
        for slot in self._slots.free(records, self._client._host.random()):
            lease: L | None = self._client.try_acquire(slot, ttl, **at_slot(options))
            if lease is not None:
                return lease, records
        return None, records

    def _wait(self, ttl: Duration | Timing | None, patience: Patience, options: Mapping[str, Any]) -> L | None:
        """Stand in all queues, take the first slot that is ours, and leave the others."""
        client = self._client
        places = client.places(self._slots.slots, ttl, **at_slot(options))
        lease: L | None = None
        try:
            lease = client.wait_any(places, patience.left())
            return lease
        finally:
            for place in places:
                place.leave()
                if place.lease is not None and place.lease is not lease:
                    client.drop(place.lease)


class AsyncSemaphore(BaseSemaphore, Generic[A]):
    """So many may hold it at once. The number is that of whoever says the highest, and no secret of the store's."""

    def __init__(self, client: AsyncLeases[A], name: str, slots: int) -> None:
        super().__init__(client, name, slots)

    def acquire(
        self, ttl: Duration | Timing | None = 30.0, wait: Duration | None = None, **options: Unpack[Options]
    ) -> Opening[A]:
        """Wait for a slot, in order of arrival, and return the lease on it; or raise `LeaseHeld`.

        The arguments are those of ``client.acquire``. With ``wait=0``, and in ``try_acquire``, who waits is not asked.
        """
        return Opening("AsyncSemaphore.acquire", self._acquire(ttl, wait, options))

    async def try_acquire(self, ttl: Duration | Timing | None = 30.0, **options: Unpack[Options]) -> A | None:
        """Return the lease on a slot if one is free now, else None."""
        return (await self._look(ttl, options))[0]

    async def holders(self) -> Sequence[Record]:
        """Return who holds the slots."""
        return [record for record in await self._client.get_each(self._slots.slots) if record is not None]

    async def _acquire(self, ttl: Duration | Timing | None, wait: Duration | None, options: Mapping[str, Any]) -> A:
        client, patience = self._client, Patience(wait, self._client._host.clock)
        if patience.none:
            lease, records = await self._look(ttl, options)
            if lease is None:
                raise self._slots.taken(records)
            return lease
        turn = await self._queue_up(ttl, wait, options)
        try:
            lease, records = await self._look(ttl, options)
            if lease is None:
                lease = await self._wait(ttl, patience, options)
            if lease is None:
                raise self._slots.taken(records)
            return lease
        finally:
            client.drop(turn)

    async def _queue_up(self, ttl: Duration | Timing | None, wait: Duration | None, options: Mapping[str, Any]) -> A:
        """Wait for the gate, and return the lease on it."""
        try:
            turn: A = await self._client.acquire(self._slots.gate, ttl, wait, **at_gate(options))
        except LeaseHeld as error:
            if isinstance(error, QueueFull):
                raise
            raise self._slots.taken(await self._client.get_each(self._slots.slots)) from error
        return turn

    async def _look(
        self, ttl: Duration | Timing | None, options: Mapping[str, Any]
    ) -> tuple[A | None, Sequence[Record | None]]:
        """Take a slot that is free, and not kept for somebody else."""
        records = await self._client.get_each(self._slots.slots)
        for slot in self._slots.free(records, self._client._host.random()):
            lease: A | None = await self._client.try_acquire(slot, ttl, **at_slot(options))
            if lease is not None:
                return lease, records
        return None, records

    async def _wait(self, ttl: Duration | Timing | None, patience: Patience, options: Mapping[str, Any]) -> A | None:
        """Stand in all queues, take the first slot that is ours, and leave the others."""
        client = self._client
        places = client.places(self._slots.slots, ttl, **at_slot(options))
        lease: A | None = None
        try:
            lease = await client.wait_any(places, patience.left())
            return lease
        finally:
            for place in places:
                place.leave()
                if place.lease is not None and place.lease is not lease:
                    client.drop(place.lease)
