"""Three servers, and what may happen to them. By the host's clock, there are never two holders."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from leasehold import Client
from leasehold.core.holder import State
from leasehold.testing.conformance.base import until
from tests.servers.tunnel import Tunnel
from tests.servers.zookeeper import Ensemble, ensemble
from tests.stores.zookeeper.holders import PATIENCE, Holder, Successor, hand_over_after_a_loss

if TYPE_CHECKING:
    from collections.abc import Iterator

serials = itertools.count()


@pytest.fixture(scope="module")
def three() -> Iterator[Ensemble]:
    with ensemble() as three:
        yield three


@pytest.fixture
def place(three: Ensemble) -> str:
    three.settle()
    return f"/faults?namespace=n{next(serials)}"


def acquire_again(client: Client, resource: str, above: int) -> None:
    """The client that lost it goes on as if nothing had happened."""
    with client.acquire(resource, ttl=5, wait=PATIENCE) as again:
        assert again.token > above
        again.check()


def test_a_lease_survives_the_death_of_the_leader(three: Ensemble, place: str) -> None:
    with Client(three.url + place, timeout=20) as one, Client(three.url + place, timeout=20) as other:
        holder, successor = Holder(one, "job", 8), Successor(other, "job", 8)
        leader = three.leader
        leader.kill()
        until(lambda: sum(server.mode == "leader" for server in three.servers) == 1, "a new leader", PATIENCE)
        renewals = one.get("job").renewals  # type: ignore[union-attr]
        until(lambda: one.get("job").renewals > renewals, "a renewal", PATIENCE)  # type: ignore[union-attr]
        assert holder.lease.state is State.HELD
        assert successor.waits
        leader.start()
        holder.stop_looking()
        holder.lease.release()
        newer, began_ns = successor.result()
        assert holder.last_sure_ns < began_ns
        assert newer.token > holder.token


def test_a_holder_whose_server_stands_still_stops_in_time(three: Ensemble, place: str) -> None:
    follower = three.followers[0]
    with Client(follower.url + place, timeout=20) as one, Client(three.leader.url + place, timeout=20) as other:
        holder, successor = Holder(one, "job", 1.5), Successor(other, "job", 8)
        with follower.standing_still():
            newer = hand_over_after_a_loss(holder, successor)
        three.settle()
        newer.release()
        acquire_again(one, "job", newer.token)


def test_a_holder_finds_another_server_before_its_time_is_over(three: Ensemble, place: str) -> None:
    """The one that it is connected to stands still, and the lease is held all the while."""
    followers = three.followers
    url = "zookeeper://" + ",".join(server.address for server in followers)
    with Client(url + place, timeout=20) as client:
        holder = Holder(client, "job", 12)
        session = client._engine.store._desk.ledger.all()[0].session  # type: ignore[attr-defined]
        port = session._client._connection._socket.getpeername()[1]
        silent = next(server for server in followers if server.port == port)
        with silent.standing_still():
            renewed_us = client.get("job").renewed_us  # type: ignore[union-attr]
            until(lambda: client.get("job").renewed_us > renewed_us, "a renewal elsewhere")  # type: ignore[union-attr]
            assert holder.lease.state is not State.LOST
        holder.stop_looking()
        assert holder.lease.release()


def test_a_lease_survives_the_restart_of_all_servers_one_by_one(three: Ensemble, place: str) -> None:
    with Client(three.url + place, timeout=20) as one, Client(three.url + place, timeout=20) as other:
        holder, successor = Holder(one, "job", 12), Successor(other, "job", 12)
        for server in three.servers:
            server.kill()
            server.start()
            three.settle()
        assert holder.lease.state is not State.LOST
        assert successor.waits
        holder.stop_looking()
        holder.lease.release()
        newer, began_ns = successor.result()
        assert holder.last_sure_ns < began_ns
        assert newer.token > holder.token


def test_a_holder_that_nobody_hears_stops_in_time(three: Ensemble, place: str) -> None:
    """Connections stay open, and nothing comes through."""
    tunnels = [Tunnel(server.port) for server in three.servers]
    with tunnels[0], tunnels[1], tunnels[2]:
        url = "zookeeper://" + ",".join(f"127.0.0.1:{tunnel.port}" for tunnel in tunnels)
        with Client(url + place, timeout=20) as one, Client(three.url + place, timeout=20) as other:
            holder, successor = Holder(one, "job", 1.5), Successor(other, "job", 8)
            for tunnel in tunnels:
                tunnel.swallow()
            newer = hand_over_after_a_loss(holder, successor)
            for tunnel in tunnels:
                tunnel.mend()
            newer.release()
            acquire_again(one, "job", newer.token)
