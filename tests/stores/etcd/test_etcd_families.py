"""Leases that stand under one another, more of them than one transaction of etcd's takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Notice, Release, Released, Revoke, Unknown
from lessor.errors import ConfigError
from lessor.testing.conformance.base import new_id, take, taken, until
from tests.servers.etcd import EtcdServer, etcd_server
from tests.stores.etcd.test_etcd_keys import apply, keys, metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lessor.core.ops import Op
    from lessor.stores.etcd import EtcdStore


def names(parent: str, count: int) -> list[str]:
    return [f"{parent}/{number}" for number in range(count)]


def transactions(server: EtcdServer) -> float:
    return metric(server, 'grpc_server_started_total{grpc_method="Txn"')


def put_under(store: EtcdStore, parent: tuple[str, int], names: Sequence[str], ttl: int = 0) -> list[tuple[str, int]]:
    """Acquire them under that lease; return their names and tokens."""
    outcomes = apply(store, *(Acquire(name, new_id(), "somebody", ttl * SECOND, parent=parent) for name in names))
    return [(name, outcome.token) for name, outcome in zip(names, outcomes, strict=True)]  # type: ignore[union-attr]


def chain(store: EtcdStore, name: str, levels: int) -> tuple[str, int]:
    """Acquire so many leases, each under the one before, and return the last."""
    last = name, taken(store, name, 30).token
    for level in range(1, levels):
        (last,) = put_under(store, last, [f"{name}/{level}"])
    return last


@pytest.mark.parametrize("end", [Release("top", "a"), Revoke("top", force=True)], ids=["released", "by force"])
@pytest.mark.parametrize("family", [(10, 5, 0), (20, 4, 0), (10, 5, 20), (3, 60, 20)], ids=str)
def test_two_levels_end_with_their_top(
    server: EtcdServer, namespace: str, open_store: Callable[[], EtcdStore], end: Op, family: tuple[int, int, int]
) -> None:
    """In one step, for all who ask; and none of those that last as long as what they stand under leaves a key."""
    children, grandchildren, ttl = family
    store, other = open_store(), open_store()
    top = "top", taken(store, "top", 30, "a").token
    parents = put_under(store, top, names("part", children), ttl)
    below = [child for name, token in parents for child in put_under(store, (name, token), names(name, grandchildren))]
    assert apply(store, end) == [Released()]
    assert list(other.scan("", timeout=10)) == []
    found = [value for key, value in keys(server, namespace).items() if "/lease/part/" in key]
    assert not [value for value in found if value["state"] == "held" and value["ttl_ns"] == 0]
    for name, _ in [*parents, *below]:
        assert isinstance(take(other, name, 30), Granted)


@pytest.mark.parametrize("end", [Release("top", "a"), Revoke("top", force=True)], ids=["released", "by force"])
def test_forty_children_with_a_grace_and_waiters_end_and_twenty_are_called_for(
    open_store: Callable[[], EtcdStore], end: Op
) -> None:
    store, other = open_store(), open_store()
    subscription = other.subscribe()
    top = "top", taken(store, "top", 30, "a", grace_ns=20 * SECOND).token
    parts = put_under(store, top, names("part", 40))
    here = subscription.address
    waits = [Acquire(name, new_id(), "other", 30 * SECOND, queue=True, notify=here) for name, _ in parts]
    apply(other, *waits)
    assert apply(store, end) == [Released()]
    called: set[str] = set()

    def are_called() -> bool:
        called.update(notice.lease_id for notice in subscription.get(0.1) or () if isinstance(notice, Notice))
        return len(called) >= 20

    until(are_called, "the calls")
    assert {type(outcome) for outcome in apply(other, *waits)} == {Granted}
    subscription.close()


def test_a_parent_with_forty_children_is_released_in_a_few_requests(store: EtcdStore, server: EtcdServer) -> None:
    """However many children there are, they are looked at together."""
    put_under(store, ("top", taken(store, "top", 30, "a").token), names("part", 40))
    before = transactions(server)
    assert apply(store, Release("top", "a")) == [Released()]
    assert transactions(server) - before <= 6


def test_a_large_family_shares_a_transaction_only_with_what_fits(
    server: EtcdServer, open_store: Callable[[], EtcdStore]
) -> None:
    """Each of the acquires looks at three leases above it, and so is ready to be written just when the release is.

    None of the transactions is refused, or each of the operations would be sent by itself.
    """
    store, other = open_store(), open_store()
    put_under(store, ("top", taken(store, "top", 30, "a").token), names("part", 44))
    parents = [chain(store, f"chain/{number}", 3) for number in range(45)]
    acquires = [Acquire(f"{parent[0]}/leaf", new_id(), "me", 0, parent=parent) for parent in parents]
    before = transactions(server)
    outcomes = apply(other, *acquires, Release("top", "a"))
    assert transactions(server) - before <= 20
    assert {type(outcome) for outcome in outcomes[:-1]} == {Granted}
    assert outcomes[-1] == Released()


@pytest.fixture(scope="module")
def sparing() -> Iterator[EtcdServer]:
    """A server that takes fewer operations in a transaction than by default."""
    with etcd_server("--max-txn-ops", "32") as server:
        yield server


def test_what_etcd_refuses_is_told_to_who_asked_for_it_and_to_nobody_else(
    sparing: EtcdServer, open_store: Callable[[str], EtcdStore]
) -> None:
    """The acquire looks at the leases above it one by one, so it is under way when the release is refused."""
    store, other = open_store(sparing.url), open_store(sparing.url)
    top = "top", taken(store, "top", 30, "a").token
    for name in names("part", 20):
        put_under(store, top, [name])
    parent = chain(store, "chain", 6)
    granted, refused = apply(other, Acquire("leaf", "b", "me", 0, parent=parent), Release("top", "a"))
    assert isinstance(granted, Granted)
    assert isinstance(refused, Unknown)
    assert isinstance(refused.error, ConfigError)
    assert "--max-txn-ops" in str(refused.error)
