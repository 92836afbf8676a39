"""Three members, of which some die, stand still or are cut off: never two holders, and everybody goes on."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from lessor.testing.conformance.base import pass_time, until
from tests.servers.etcd import EtcdCluster, EtcdServer, etcd_cluster, etcd_cluster_with_island
from tests.servers.tunnel import Tunnel
from tests.stores.contest import Contest

if TYPE_CHECKING:
    from collections.abc import Iterator

TTL = 3.0
LONG_TTL = 8.0
serials = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EtcdCluster]:
    with etcd_cluster() as cluster:
        yield cluster


@pytest.fixture
def options() -> str:
    return f"?namespace=faults-{next(serials)}"


def others(cluster: EtcdCluster, *without: EtcdServer) -> str:
    return "etcd://" + ",".join(f"{m.host}:{m.port}" for m in cluster.members if m not in without)


def test_the_leader_is_killed(cluster: EtcdCluster, options: str) -> None:
    """The holder goes on with the others, and keeps its lease."""
    leader = cluster.leader()
    with Contest(cluster.url + options, cluster.url + options, LONG_TTL) as contest:
        leader.kill()
        try:
            until(lambda: cluster.leader() is not leader, "another leader", 30)
            contest.is_kept()
            contest.goes_on(contest.is_handed_over())
        finally:
            cluster.start(leader)


def test_the_leader_is_killed_and_the_holder_knows_no_other_member(cluster: EtcdCluster, options: str) -> None:
    leader = cluster.leader()
    with Contest(leader.url + options, others(cluster, leader) + options, TTL) as contest:
        leader.kill()
        try:
            newer = contest.is_lost_in_time()
        finally:
            cluster.start(leader)
        contest.goes_on(newer)


def test_all_members_are_restarted_one_by_one(cluster: EtcdCluster, options: str) -> None:
    with Contest(cluster.url + options, cluster.url + options, LONG_TTL) as contest:
        for member in cluster.members:
            member.kill()
            cluster.start(member)
        contest.is_kept()
        contest.goes_on(contest.is_handed_over())


def test_a_leader_stands_still_and_goes_on(cluster: EtcdCluster, options: str) -> None:
    """Another one is elected, and the lease, which only the old one could renew, runs out; its late word is nothing."""
    leader = cluster.leader()
    with Contest(leader.url + options, others(cluster, leader) + options, TTL) as contest:
        with leader.standing_still():
            newer = contest.is_lost_in_time()
        pass_time(TTL / 2)
        contest.goes_on(newer)


def test_the_holders_connection_is_swallowed(cluster: EtcdCluster, options: str) -> None:
    with (
        Tunnel(cluster.members[0].port) as tunnel,
        Contest(f"etcd://127.0.0.1:{tunnel.port}{options}", cluster.url + options, TTL) as contest,
    ):
        tunnel.swallow()
        newer = contest.is_lost_in_time()
        tunnel.mend()
        contest.goes_on(newer)


def test_one_of_the_holders_members_is_swallowed(cluster: EtcdCluster, options: str) -> None:
    """It asks another one, in time."""
    first = cluster.members[0]
    with Tunnel(first.port) as tunnel:
        mine = f"etcd://127.0.0.1:{tunnel.port},{others(cluster, first).removeprefix('etcd://')}{options}"
        with Contest(mine, cluster.url + options, LONG_TTL) as contest:
            tunnel.swallow()
            contest.is_kept()
            contest.goes_on(contest.is_handed_over())


def test_a_member_is_cut_off_with_the_holder_on_it() -> None:
    """First as a follower or leader, whichever it is, and then, once it is back, again."""
    with etcd_cluster_with_island() as (cluster, member, island):
        for options in ("?namespace=first", "?namespace=again"):
            with Contest(member.url + options, others(cluster, member) + options, TTL) as contest:
                with island.cut_off():
                    newer = contest.is_lost_in_time()
                contest.goes_on(newer)
