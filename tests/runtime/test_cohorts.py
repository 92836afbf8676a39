"""Leases that are renewed by one call go on together, and each still ends by itself."""

from __future__ import annotations

import contextlib
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lessor.core.clock import SECOND
from lessor.core.holder import State
from lessor.core.ops import Renew
from lessor.runtime import agenda, cohort, keeper
from lessor.runtime.clock import SYSTEM
from lessor.runtime.host import HERE
from lessor.stores.registry import open_store
from lessor.testing import FaultyStore
from lessor.testing.conformance.base import PATIENCE, until
from tests.stores.interrupting import interrupted_everywhere

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from lessor import Client
    from lessor.client.lease import Lease

MANY = 20


@pytest.fixture
def store(url: str) -> FaultyStore:
    store = FaultyStore(open_store(url, SYSTEM))
    store.matching = lambda op: isinstance(op, Renew)
    return store


@pytest.fixture
def client(store: FaultyStore, open_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> Client:
    # Without chance, what was taken at about the same time is due at about the same time.
    monkeypatch.setattr(HERE, "random", lambda: 0.0)
    return open_client(store)


def together(client: Client, ttl: float = 3) -> list[Lease]:
    """Return leases that have been renewed by one call: where they were taken too far apart for that, others."""
    while True:
        leases = [client.acquire(f"r/{number}", ttl=ttl) for number in range(MANY)]
        with contextlib.suppress(AssertionError):
            until(partial(are_together, leases), "a renewal of all", patience=2 * ttl)
            return leases
        for lease in leases:
            lease.release()


def are_together(leases: list[Lease]) -> bool:
    return len({lease._cohort or lease for lease in leases}) == 1


def renewed(store: FaultyStore) -> list[list[str]]:
    """Return the resources of each call that renewed, so far."""
    return [[op.resource for op in ops] for ops in store.calls if isinstance(ops[0], Renew)]


def test_one_call_renews_them_all(client: Client, store: FaultyStore) -> None:
    leases = together(client)
    seen = len(renewed(store))
    until(lambda: len(renewed(store)) >= seen + 3, "three more renewals")
    for names in renewed(store)[seen : seen + 3]:
        assert sorted(names) == sorted(lease.resource for lease in leases)


def test_who_is_released_is_not_renewed_and_the_others_are(client: Client, store: FaultyStore) -> None:
    first, *others = together(client)
    first.release()
    seen = len(renewed(store))
    until(lambda: len(renewed(store)) > seen + 1, "another renewal")
    assert sorted(renewed(store)[-1]) == sorted(lease.resource for lease in others)
    for lease in others:
        lease.check()


def test_who_is_revoked_is_lost_alone(client: Client, store: FaultyStore) -> None:
    first, *others = together(client)
    lost = threading.Event()
    first.on_lost(lambda _: lost.set())
    client.revoke(first.resource, force=True)
    assert lost.wait(PATIENCE)
    seen = len(renewed(store))
    until(lambda: len(renewed(store)) > seen + 1, "another renewal")
    for lease in others:
        assert lease.state is State.HELD


def test_who_is_renewed_out_of_turn_is_not_renewed_twice_from_then_on(client: Client, store: FaultyStore) -> None:
    first, *_ = together(client)
    client._engine.keeper.renew_soon(first)
    seen = len(renewed(store))
    until(lambda: len(renewed(store)) >= seen + 4, "more renewals")
    asked = [name for names in renewed(store)[seen:] for name in names]
    assert max(asked.count(name) for name in asked) <= 4 + 1
    for names in renewed(store)[seen:]:
        assert len(set(names)) == len(names)


def test_when_nothing_is_renewed_all_are_lost_in_time(client: Client, store: FaultyStore) -> None:
    leases = together(client)
    told: list[str] = []
    for lease in leases:
        lease.on_lost(lambda lost: told.append(lost.resource))
    store.lost_requests = 10**6
    until(lambda: len(told) == MANY, "the loss of all")
    assert {lease.loss for lease in leases} == {"expired"}


def test_jeopardy_and_safety_are_told_to_each(client: Client, store: FaultyStore) -> None:
    leases = together(client)
    told: list[tuple[str, str]] = []
    for lease in leases:
        lease.on_jeopardy(lambda one: told.append(("jeopardy", one.resource)))
        lease.on_safe(lambda one: told.append(("safe", one.resource)))
    store.lost_requests = 1
    until(lambda: len(told) == 2 * MANY, "jeopardy, and safety again")
    assert {word for word, _ in told[:MANY]} == {"jeopardy"}
    for lease in leases:
        assert lease.state is State.HELD


@pytest.mark.parametrize("again", [False, True], ids=["", "renewed"])
def test_what_is_released_is_not_kept_until_it_would_be_renewed(client: Client, *, again: bool) -> None:
    leases = [client.acquire(f"r/{number}", ttl=3600) for number in range(MANY)]
    until(lambda: all(lease._cohort is not None for lease in leases), "the keeper to have them")
    if again:
        before = {lease._cohort for lease in leases}
        for lease in leases:
            client._engine.keeper.renew_soon(lease)
        until(lambda: before.isdisjoint({lease._cohort for lease in leases}), "a renewal")
        del before, lease
    known = [weakref.ref(lease) for lease in leases]
    while leases:
        leases.pop().release()
    client.acquire("another", ttl=1)  # wakes the threads up
    until(lambda: not any(reference() for reference in known), "all to be forgotten")


def test_a_renewal_out_of_turn_is_not_put_off_by_what_was_decided_before(client: Client) -> None:
    lease = client.acquire("job", ttl=30)
    until(lambda: lease._cohort is not None, "the keeper to have it")
    engine, before = client._engine, lease._cohort
    engine.keeper.renew_soon(lease)
    assert not engine.keeper._form([lease], [before], SYSTEM.now() + 10 * SECOND)
    assert lease._cohort is not before


@pytest.mark.parametrize("module", [agenda, cohort, keeper])
def test_an_interrupt_leaves_no_lease_without_a_renewal_and_a_watch(client: Client, module: ModuleType) -> None:
    lease = client.acquire("job", ttl=30)
    until(lambda: lease._cohort is not None, "the keeper to have it")
    engine = client._engine

    def is_known() -> bool:
        mine = lease._cohort
        assert mine is not None
        agendas = (mine.lane, engine.watchdog._agenda)
        return all(mine in one._new or mine in one._schedule for one in agendas)

    for where in interrupted_everywhere(module, lambda: engine.keeper.renew_soon(lease)):
        until(is_known, f"it to be in both agendas, after an interrupt at {where}")


def test_a_renewal_has_no_more_time_than_the_parent(client: Client) -> None:
    parent = client.acquire("parent", ttl=30)
    child = client.acquire("child", ttl=None, parent=parent)
    assert keeper._soonest_over([child]) == parent._over_ns
    assert keeper._soonest_over([parent, child]) == parent._over_ns
