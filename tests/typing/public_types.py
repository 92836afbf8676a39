"""The types that users' type checkers see. Nothing here runs: mypy reads it with the rest, and fails where one differs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, assert_type

from lessor import (
    AsyncBundle,
    AsyncCampaign,
    AsyncClient,
    AsyncGrant,
    AsyncLease,
    AsyncPlace,
    AsyncSession,
    AsyncTerm,
    Bundle,
    Campaign,
    Client,
    Contender,
    Event,
    EventKind,
    Grant,
    Leader,
    Lease,
    Loss,
    Parent,
    Place,
    Record,
    Session,
    Skipped,
    Term,
    current_lease,
)
from lessor import Leese as _NoSuchName  # type: ignore[attr-defined] # noqa: F401 - a misspelt name is noticed


def threads(client: Client) -> None:
    with client.acquire("x", ttl=30, wait=5, metadata={"k": "v"}, priority=1) as lease:
        assert_type(lease, Lease)
        assert_type(lease.token, int)
        assert_type(lease.remaining, float)
        assert_type(lease.loss, Loss | None)
        with lease.again() as again:
            assert_type(again, Lease)
    assert_type(client.try_acquire("x"), Lease | None)
    place = client.enqueue("x")
    assert_type(place, Place)
    assert_type(place.wait(0), Lease | None)
    assert_type(place.lease, Lease | None)
    assert_type(client.wait_any(client.places(["a", "b"])), Lease | None)
    assert_type(client.try_each(["a"]), dict[str, Lease])
    with client.acquire_all(["a", "b"]) as bundle:
        assert_type(bundle, Bundle[Lease])
        assert_type(bundle["a"], Lease)
    with client.semaphore("pool", 3).acquire(ttl=10, wait=1) as slot:
        assert_type(slot, Lease)
    grant = client.acquire_in(object(), "x")
    assert_type(grant, Grant)
    assert_type(grant.confirm(), Lease)


def sessions(client: Client) -> None:
    with client.session(ttl=15) as session:
        assert_type(session, Session[Lease])
        assert_type(session.lease, Lease)
        assert_type(session.leases, tuple[Lease, ...])
        with session.acquire("x", wait=1, priority=3, metadata={}) as lease:
            assert_type(lease, Lease)
        assert_type(session.try_acquire("x"), Lease | None)
        session.acquire("x", wiat=1)  # type: ignore[call-arg]
        session.acquire("x", priority="high")  # type: ignore[arg-type]
        session.acquire("x", grace=1)  # type: ignore[call-arg]


def what_is_shown(client: Client) -> None:
    record = client.get("x")
    assert_type(record, Record | None)
    assert record is not None
    assert_type(record.ttl, float)
    assert_type(record.granted, datetime)
    assert_type(record.parent, Parent | None)
    assert_type(record.queue, tuple[Contender, ...])
    assert_type(record.as_dict(), dict[str, Any])
    assert_type(client.list(), list[Record])
    assert_type(client.contenders("x")[0].since, datetime)
    leader = client.leader("x")
    assert_type(leader, Leader | None)
    assert leader is not None
    assert_type(leader.since, datetime)
    for event in client.watch():
        assert_type(event, Event)
        assert_type(event.kind, EventKind)
        assert_type(event.at, datetime)
    for one in client.observe("x"):
        assert_type(one, Leader | None)
    assert_type(client.revoke("x"), float | None)


def elections(client: Client) -> None:
    campaign = client.campaign("x", ready=dict)
    assert_type(campaign, Campaign)
    assert_type(campaign.drain(timeout=5, to="heir"), bool)
    for term in campaign:
        with term as entered:
            assert_type(entered, Term)
    assert_type(client.lead("x", lambda term: term.token), int)


def singletons(client: Client) -> None:
    @client.singleton("job")
    def job(count: int) -> str:
        assert_type(current_lease(), Lease | AsyncLease)
        current_lease().check()
        return str(count + current_lease().token)

    assert_type(job(3), str | Skipped)


async def tasks(client: AsyncClient) -> None:
    async with client.acquire("x", ttl=30, wait=5) as lease:
        assert_type(lease, AsyncLease)
        assert_type(await lease.release(), bool)
    assert_type(await client.acquire("x"), AsyncLease)
    assert_type(await client.try_acquire("x"), AsyncLease | None)
    place = await client.enqueue("x")
    assert_type(place, AsyncPlace)
    assert_type(await place.wait(0), AsyncLease | None)
    assert_type(place.lease, AsyncLease | None)
    async with client.acquire_all(["a", "b"]) as bundle:
        assert_type(bundle, AsyncBundle[AsyncLease])
        assert_type(bundle["a"], AsyncLease)
    async with client.semaphore("pool", 3).acquire(ttl=10, wait=1) as slot:
        assert_type(slot, AsyncLease)
    grant = await client.acquire_in(object(), "x")
    assert_type(grant, AsyncGrant)
    assert_type(await grant.confirm(), AsyncLease)


async def sessions_of_tasks(client: AsyncClient) -> None:
    async with client.session(ttl=15) as session:
        assert_type(session, AsyncSession[AsyncLease])
        assert_type(session.lease, AsyncLease)
        assert_type(session.leases, tuple[AsyncLease, ...])
        async with session.acquire("x", wait=1, priority=3) as lease:
            assert_type(lease, AsyncLease)
        assert_type(await session.acquire("x"), AsyncLease)
        async with session.acquire_all(["x", "y"]) as bundle:
            assert_type(bundle, AsyncBundle[AsyncLease])
        session.acquire("x", wiat=1)  # type: ignore[call-arg]


async def what_is_shown_to_tasks(client: AsyncClient) -> None:
    assert_type(await client.get("x"), Record | None)
    assert_type(await client.list(), list[Record])
    assert_type((await client.contenders("x"))[0], Contender)
    assert_type(await client.leader("x"), Leader | None)
    async for event in client.watch():
        assert_type(event, Event)
    async for leader in client.observe("x"):
        assert_type(leader, Leader | None)


async def elections_of_tasks(client: AsyncClient) -> None:
    campaign = client.campaign("x")
    assert_type(campaign, AsyncCampaign)
    assert_type(await campaign.drain(timeout=5), bool)
    async for term in campaign:
        async with term as entered:
            assert_type(entered, AsyncTerm)

    async def work(term: AsyncTerm) -> int:
        return term.token

    assert_type(await client.lead("x", work), int)
