"""What is in etcd, for someone who looks there: keys, revisions, leases, and nothing left over."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lessor import Client, LeaseHeld
from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Loss, Lost, Notice, Release, Released, Renew, Renewed
from lessor.testing.conformance.base import pass_time, take, taken, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.ops import Op, Outcome
    from lessor.stores.base import Subscription
    from lessor.stores.etcd import EtcdStore
    from tests.servers.etcd import EtcdServer


def keys(server: EtcdServer, namespace: str) -> dict[str, Any]:
    lines = server.ctl("get", "--prefix", f"/lessor/{namespace}/").splitlines()
    return {key: json.loads(value) for key, value in zip(lines[::2], lines[1::2], strict=True)}


def etcd_leases(server: EtcdServer) -> set[str]:
    return {lease["ID"] for lease in server.ask("lease/leases", {}).get("leases", ())}


def apply(store: EtcdStore, *ops: Op) -> list[Outcome]:
    return store.apply(ops, timeout=10)


def test_a_lease_is_readable(store: EtcdStore, server: EtcdServer, namespace: str) -> None:
    taken(store, "reports/nightly", 30, "a" * 32, metadata='{"why":"ü"}')
    take(store, "reports/nightly", 30, "b" * 32, queue=True)
    found = keys(server, namespace)
    lease = found[f"/lessor/{namespace}/lease/reports/nightly"]
    assert (lease["state"], lease["holder"], lease["metadata"]) == ("held", "somebody", '{"why":"ü"}')
    assert f"/lessor/{namespace}/wait/reports/nightly//queue/{'b' * 32}" in found


def test_the_token_is_the_revision_of_the_grants_own_write(
    store: EtcdStore, server: EtcdServer, namespace: str
) -> None:
    """Not of the place in the queue, nor of a renewal, nor of a revocation."""
    taken(store, "job", 30, "a")
    take(store, "job", 30, "b", queue=True)
    apply(store, Release("job", "a"))
    token = taken(store, "job", 30, "b", queue=True).token
    shown = json.loads(server.ctl("get", f"/lessor/{namespace}/lease/job", "-w", "json"))["kvs"][0]
    assert token == shown["mod_revision"]
    assert isinstance(apply(store, Renew("job", "b", token, 30 * SECOND))[0], Renewed)
    record = store.read(["job"], timeout=10)[0]
    assert record is not None
    assert record.token == token


def test_a_thousand_failed_tries_leave_nothing(
    server: EtcdServer, namespace: str, open_store: Callable[[], EtcdStore]
) -> None:
    holder, trying = open_store(), open_store()
    for number in range(10):
        taken(holder, f"job/{number}", 60)
    before, leases = keys(server, namespace), etcd_leases(server)
    watchers = metric(server, "etcd_debugging_mvcc_watcher_total")
    for _ in range(10):
        tries = [Acquire(f"job/{n % 10}", f"{n:032x}", "me", 30 * SECOND) for n in range(100)]
        assert {type(outcome) for outcome in apply(trying, *tries)} == {Held}
    assert keys(server, namespace) == before
    assert etcd_leases(server) <= leases
    assert metric(server, "etcd_debugging_mvcc_watcher_total") == watchers


def test_a_thousand_waits_that_fail_leave_nothing_for_long(
    server: EtcdServer, namespace: str, open_store: Callable[[], EtcdStore]
) -> None:
    holder, trying = open_store(), open_store()
    taken(holder, "job", 60)
    before = keys(server, namespace)
    for batch in range(10):
        ids = [f"{batch}-{n}" for n in range(10)]
        apply(trying, *(Acquire("job", i, "me", 30 * SECOND, queue=True) for i in ids))
        apply(trying, *(Release("job", i) for i in ids))
    assert keys(server, namespace) == before
    leases = etcd_leases(server)
    trying.close()
    assert len(etcd_leases(server)) < len(leases)


def test_a_client_that_closes_leaves_no_etcd_lease(server: EtcdServer, namespace: str) -> None:
    before = etcd_leases(server)
    with Client(f"{server.url}?namespace={namespace}") as client:
        for _ in range(5):
            client.acquire("job", ttl=3600).release()
        lease = client.acquire("job", ttl=3600)
        with pytest.raises(LeaseHeld):
            client.acquire("job", ttl=3600, wait=0)
        assert lease.token
    left = etcd_leases(server) - before
    # What is left is for the notes on how the leases ended, and ends by itself.
    assert len(left) <= 1
    for lease_id in left:
        assert int(server.ask("lease/timetolive", {"ID": lease_id})["grantedTTL"]) <= 90


def test_the_etcd_lease_is_used_again(store: EtcdStore, server: EtcdServer) -> None:
    taken(store, "job", 30, "0")
    leases = etcd_leases(server)
    for number in range(20):
        apply(store, Release("job", str(number)))
        taken(store, "job", 30, str(number + 1))
    assert len(etcd_leases(server) - leases) <= 1  # for the notes


def test_an_undisputed_pair_takes_two_requests(store: EtcdStore, server: EtcdServer) -> None:
    taken(store, "job", 30, "0")
    apply(store, Release("job", "0"))
    before = writes(server)
    for number in range(1, 51):
        taken(store, "job", 30, str(number))
        apply(store, Release("job", str(number)))
    assert writes(server) - before == 100


def test_a_release_calls_the_first_waiter_in_the_same_write(
    server: EtcdServer, namespace: str, open_store: Callable[[], EtcdStore]
) -> None:
    """Where the holder has seen it. Who is called needs an etcd lease and one write, and has seen who comes next."""
    holder, other = open_store(), open_store()
    subscription = other.subscribe()
    granted = taken(holder, "job", 30, "a")
    for waiter in "bc":
        take(other, "job", 30, waiter, queue=True, notify=subscription.address)
    apply(holder, Renew("job", "a", granted.token, 30 * SECOND))

    def release(store: EtcdStore, lease_id: str) -> float:
        before = writes(server)
        assert isinstance(apply(store, Release("job", lease_id))[0], Released)
        return writes(server) - before

    assert release(holder, "a") == 1
    assert called(subscription) == ["b"]
    before = writes(server)
    taken(other, "job", 30, "b", queue=True)
    assert writes(server) - before == 2
    assert release(other, "b") == 1
    assert called(subscription) == ["c"]
    subscription.close()


def test_a_waiter_that_has_left_is_not_called(
    server: EtcdServer, namespace: str, open_store: Callable[[], EtcdStore]
) -> None:
    holder, other = open_store(), open_store()
    granted = taken(holder, "job", 30, "a")
    for waiter in "bc":
        take(other, "job", 30, waiter, queue=True, notify=f"there-{waiter}")
    apply(holder, Renew("job", "a", granted.token, 30 * SECOND))
    apply(other, Release("job", "b"))
    assert isinstance(apply(holder, Release("job", "a"))[0], Released)
    called = [key for key in keys(server, namespace) if "/notice/" in key]
    assert called == [f"/lessor/{namespace}/notice/there-c//c"]


def test_ids_that_were_given_up_do_not_hide_who_waits(
    server: EtcdServer, namespace: str, open_store: Callable[[], EtcdStore]
) -> None:
    holder, other = open_store(), open_store()
    taken(holder, "job", 30, "a")
    for number in range(12):
        apply(other, Release("job", f"given up {number}", abandon=True))
    take(other, "job", 30, "b", queue=True, notify="there")
    assert isinstance(apply(holder, Release("job", "a"))[0], Released)
    assert f"/lessor/{namespace}/notice/there//b" in keys(server, namespace)


def test_a_batch_is_one_transaction(store: EtcdStore, server: EtcdServer) -> None:
    ops = [Acquire(f"r/{n}", str(n), "me", 30 * SECOND) for n in range(50)]
    apply(store, *ops)
    apply(store, *(Release(op.resource, op.lease_id) for op in ops))
    before = int(server.ask("kv/range", {"key": "YQ=="})["header"]["revision"])
    grants = apply(store, *ops)
    assert {type(grant) for grant in grants} == {Granted}
    after = int(server.ask("kv/range", {"key": "YQ=="})["header"]["revision"])
    assert after == before + 1


def test_a_batch_that_is_too_large_for_one_transaction(store: EtcdStore) -> None:
    """3 MB of metadata, in answers too: more than etcd takes at once, and than a connection carries without a word."""
    note = json.dumps({"k": "x" * 60_000})
    ops = [Acquire(f"r/{n:02}", str(n), "me", 30 * SECOND, metadata=note) for n in range(50)]
    assert {type(outcome) for outcome in apply(store, *ops)} == {Granted}
    records = list(store.scan("r/", timeout=20))
    assert [record.resource for record in records] == [op.resource for op in ops]
    assert {len(record.metadata["k"]) for record in records} == {60_000}
    assert {type(outcome) for outcome in apply(store, *(Release(op.resource, op.lease_id) for op in ops))} == {Released}


def test_more_operations_than_one_transaction_takes(store: EtcdStore) -> None:
    ops = [Acquire(f"r/{n}", str(n), "me", 30 * SECOND) for n in range(330)]
    grants = apply(store, *ops)
    assert {type(grant) for grant in grants} == {Granted}
    renewals = [Renew(op.resource, op.lease_id, 0, 30 * SECOND) for op in ops]
    assert {type(outcome) for outcome in apply(store, *renewals)} == {Renewed}
    assert len(list(store.scan("r/", timeout=20))) == 330


def test_a_child_hangs_on_its_parents_etcd_lease(store: EtcdStore, server: EtcdServer, namespace: str) -> None:
    parent = taken(store, "session", 2, "p")
    for name in ("x", "y"):
        taken(store, name, 0, name, parent=("session", parent.token))
    for _ in range(6):
        pass_time(0.5)
        assert isinstance(apply(store, Renew("session", "p", parent.token, 2 * SECOND))[0], Renewed)
    assert [record and record.holder for record in store.read(["x", "y"], timeout=10)] == ["somebody"] * 2
    assert isinstance(take(store, "x", 2), Held)
    assert apply(store, Release("session", "p")) == [Released()]
    assert store.read(["session", "x", "y"], timeout=10) == [None] * 3
    taken(store, "x", 2)
    assert not [key for key in keys(server, namespace) if "/under/" in key]


def test_a_child_ends_when_its_parent_runs_out(store: EtcdStore) -> None:
    parent = taken(store, "session", 1, "p")
    taken(store, "forever", 0, "x", parent=("session", parent.token))
    taken(store, "own", 30, "y", parent=("session", parent.token))
    until(lambda: store.read(["session", "forever", "own"], timeout=10) == [None] * 3, "the end of all")
    assert apply(store, Renew("own", "y", 0, 30 * SECOND))[0] == Lost(Loss.EXPIRED)
    taken(store, "own", 1)
    assert isinstance(take(store, "late", 1, parent=("session", parent.token)), Lost)


def test_a_lock_delay_keeps_others_out_after_an_expiry_but_not_after_a_release(store: EtcdStore) -> None:
    taken(store, "job", 1, "a", lock_delay_ns=3 * SECOND)
    apply(store, Release("job", "a"))
    taken(store, "job", 1, "b", lock_delay_ns=3 * SECOND)
    until(lambda: isinstance(held := take(store, "job", 1), Held) and held.closed == "lock_delay", "the expiry")
    held = take(store, "job", 1)
    assert isinstance(held, Held)
    assert held.by == "somebody"
    until(lambda: isinstance(take(store, "job", 1), Granted), "the end of the delay")


def test_a_minimum_hold_keeps_others_out_after_a_release(store: EtcdStore) -> None:
    taken(store, "job", 30, "a", hold_at_least_ns=2 * SECOND)
    released = apply(store, Release("job", "a"))[0]
    assert isinstance(released, Released)
    assert 0 < released.free_in_ns <= 2 * SECOND
    assert isinstance(take(store, "job", 30), Held)
    until(lambda: isinstance(take(store, "job", 30), Granted), "the end of the minimum")


def test_a_renewal_may_ask_for_more(store: EtcdStore) -> None:
    token = taken(store, "job", 2, "a").token
    assert apply(store, Renew("job", "a", token, 60 * SECOND)) == [Renewed(60 * SECOND)]
    record = store.read(["job"], timeout=10)[0]
    assert record is not None
    assert record.token == token
    assert record.remaining_ns > 30 * SECOND
    assert apply(store, Release("job", "a")) == [Released()]


def test_tokens_go_on_above_what_a_client_has_seen_elsewhere(
    server: EtcdServer, open_store: Callable[[], EtcdStore]
) -> None:
    """As after a restore: from then on for everybody, and a lease that was granted before keeps its token."""
    first, second = open_store(), open_store()
    old = taken(first, "old", 30, "o").token
    seen = 10**13
    raised = taken(first, "job", 30, "a", seen_token=seen).token
    assert raised > seen
    assert taken(second, "other", 30).token > raised
    apply(first, Release("job", "a"))
    assert taken(second, "job", 30).token > raised
    record = second.read(["old"], timeout=10)[0]
    assert record is not None
    assert record.token == old


def called(subscription: Subscription) -> list[str]:
    return [notice.lease_id for notice in subscription.get(10) or () if isinstance(notice, Notice)]


def metric(server: EtcdServer, name: str) -> float:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def writes(server: EtcdServer) -> float:
    return metric(server, "etcd_server_proposals_applied_total")
