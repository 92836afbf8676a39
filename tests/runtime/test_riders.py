"""Thousands of leases under one: what keeps them costs what one costs, and they end together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.ops import Acquire, Granted, Renew, Unknown
from lessor.core.timing import Timing
from lessor.errors import StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.testing import FaultyStore
from lessor.testing.conformance.base import PATIENCE, new_id, until
from tests.scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lessor import Client, Lease
    from lessor.core.ops import Op, Outcome

pytestmark = pytest.mark.heavy

MANY = scaled(10_000)
TTL = 10.0
"""Seconds: long enough for a busy machine to renew it while the others are acquired."""
PERIODS = 2


@pytest.fixture
def store(url: str) -> FaultyStore:
    return FaultyStore(open_store(url, SYSTEM))


def family(client: Client) -> tuple[Lease, list[Lease]]:
    session = client.acquire("session", ttl=Timing.of(TTL, drift=0.01))
    return session, [client.acquire(f"part/{i}", ttl=None, parent=session) for i in range(MANY)]


def test_one_renewal_a_period_keeps_thousands(store: FaultyStore, open_client: Callable[..., Client]) -> None:
    client = open_client(store)
    session, children = family(client)
    sent = len(store.calls)
    until(lambda: len(store.calls) >= sent + PERIODS, "renewals", PERIODS * TTL)
    for lease in children:
        lease.check()
    calls = store.calls[sent:]
    assert {op.resource for ops in calls for op in ops} == {"session"}
    assert all(isinstance(op, Renew) for ops in calls for op in ops)
    session.release()
    assert not any(lease.held for lease in children)
    assert client._engine.held == {}
    assert client.list("part/") == []


def test_all_are_free_when_the_session_is_and_lost_before(
    store: FaultyStore, open_client: Callable[..., Client]
) -> None:
    session, children = family(open_client(store))
    store.matching = lambda op: isinstance(op, Renew)
    store.lost_requests = 10**9
    assert session.lost.wait(PATIENCE)
    assert not any(lease.held for lease in children)
    until(lambda: all(lease.lost.is_set() for lease in children), "the word to each")
    assert {lease.loss for lease in children} == {"parent"}
    until(lambda: store.read(["session"], timeout=PATIENCE) == [None], "the expiry")
    ops = [Acquire(f"part/{i}", new_id(), "other", 10**9) for i in range(MANY)]
    outcomes = [o for at in range(0, MANY, 1000) for o in store.apply(ops[at : at + 1000], timeout=PATIENCE)]
    assert all(isinstance(outcome, Granted) for outcome in outcomes)


class PartlySilent(FaultyStore):
    """Leaves the renewals of one resource without an answer, also where it answers others in the same batch."""

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:
        outcomes = super().apply(ops, timeout=timeout)
        no_answer = Unknown(StoreUnavailable("faulty", "no answer"))
        return [
            no_answer if isinstance(op, Renew) and op.resource == "silent" else outcome
            for op, outcome in zip(ops, outcomes, strict=True)
        ]


def test_one_that_was_ended_is_told_so_also_while_another_one_gets_no_answer(
    url: str, open_client: Callable[..., Client]
) -> None:
    store = PartlySilent(open_store(url, SYSTEM))
    store.deaf = True
    client = open_client(store)
    session = client.acquire("session", ttl=6)
    gone, _silent = (client.acquire(name, ttl=None, parent=session) for name in ("gone", "silent"))
    client.revoke("gone", force=True)
    assert gone.lost.wait(PATIENCE)
    assert gone.loss == "revoked"
    session.check()
