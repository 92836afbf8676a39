"""Three servers, of which some die, stand still or are cut off: never two holders, and everybody goes on."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

import pytest

from lessor.testing.conformance.base import until
from tests.servers.tunnel import Tunnel
from tests.servers.zookeeper import Ensemble, ZooKeeperServer, ensemble, ensemble_with_island
from tests.stores.contest import PATIENCE, Contest

if TYPE_CHECKING:
    from collections.abc import Iterator

TTL = 1.5
LONG_TTL = 8.0
SLOWLY = 20.0
"""Seconds that a client waits for an answer: an election takes a while."""
serials = itertools.count()


@pytest.fixture(scope="module")
def three() -> Iterator[Ensemble]:
    with ensemble() as three:
        yield three


@pytest.fixture
def place(three: Ensemble) -> str:
    three.settle()
    return f"/faults?namespace=n{next(serials)}"


def others(three: Ensemble, *without: ZooKeeperServer) -> str:
    return "zookeeper://" + ",".join(server.address for server in three.servers if server not in without)


def test_the_leader_is_killed(three: Ensemble, place: str) -> None:
    """The holder goes on with the others, and keeps its lease."""
    leader = three.leader
    with Contest(three.url + place, three.url + place, LONG_TTL, SLOWLY) as contest:
        leader.kill()
        try:
            until(lambda: sum(server.mode == "leader" for server in three.servers) == 1, "a new leader", PATIENCE)
            contest.is_kept()
        finally:
            leader.start()
        contest.goes_on(contest.is_handed_over())


def test_the_leader_is_killed_and_the_holder_knows_no_other_server(three: Ensemble, place: str) -> None:
    leader = three.leader
    with Contest(leader.url + place, others(three, leader) + place, TTL, SLOWLY) as contest:
        leader.kill()
        try:
            newer = contest.is_lost_in_time()
        finally:
            leader.start()
        three.settle()
        contest.goes_on(newer)


def test_all_servers_are_restarted_one_by_one(three: Ensemble, place: str) -> None:
    with Contest(three.url + place, three.url + place, 12, SLOWLY) as contest:
        for server in three.servers:
            server.kill()
            server.start()
            three.settle()
        contest.is_kept()
        contest.goes_on(contest.is_handed_over())


def test_the_holders_server_stands_still(three: Ensemble, place: str) -> None:
    follower = three.followers[0]
    with Contest(follower.url + place, three.leader.url + place, TTL, SLOWLY) as contest:
        with follower.standing_still():
            newer = contest.is_lost_in_time()
        three.settle()
        contest.goes_on(newer)


def test_the_holders_server_stands_still_and_it_finds_another_one_in_time(three: Ensemble, place: str) -> None:
    mine = "zookeeper://" + ",".join(server.address for server in three.followers)
    with Contest(mine + place, three.leader.url + place, 12, SLOWLY) as contest:
        session = contest.holder._engine.store._desk.ledger.all()[0].session  # type: ignore[attr-defined]
        port = session._client._connection._socket.getpeername()[1]
        silent = next(server for server in three.followers if server.port == port)
        with silent.standing_still():
            contest.is_kept()
        contest.goes_on(contest.is_handed_over())


def test_the_holders_connection_is_swallowed(three: Ensemble, place: str) -> None:
    """Connections stay open, and nothing comes through."""
    with contextlib.ExitStack() as stack:
        tunnels = [stack.enter_context(Tunnel(server.port)) for server in three.servers]
        mine = "zookeeper://" + ",".join(f"127.0.0.1:{tunnel.port}" for tunnel in tunnels)
        with Contest(mine + place, three.url + place, TTL, SLOWLY) as contest:
            for tunnel in tunnels:
                tunnel.swallow()
            newer = contest.is_lost_in_time()
            for tunnel in tunnels:
                tunnel.mend()
            contest.goes_on(newer)


def test_a_server_is_cut_off_with_the_holder_on_it() -> None:
    """It goes on answering reads and pings. First as what it is, leader or not; then, once it is back, again."""
    with ensemble_with_island() as (three, server, island):
        for place in ("/cut/first", "/cut/again"):
            three.settle()
            with Contest(server.url + place, others(three, server) + place, TTL, SLOWLY) as contest:
                with island.cut_off():
                    newer = contest.is_lost_in_time()
                contest.goes_on(newer)
