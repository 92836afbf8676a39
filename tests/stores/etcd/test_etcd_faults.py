"""Three members, of which some die, stand still or are cut off: never two holders, and everybody goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.core.holder import State
from leasehold.testing.conformance.base import pass_time, until
from tests.servers.etcd import EtcdCluster, etcd_cluster, etcd_cluster_with_island
from tests.servers.tunnel import Tunnel
from tests.stores.etcd.contest import Contest

if TYPE_CHECKING:
    from collections.abc import Iterator

TTL = 3.0
LONG_TTL = 10.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EtcdCluster]:
    with etcd_cluster() as cluster:
        yield cluster


def test_the_leader_is_killed(cluster: EtcdCluster) -> None:
    """The holder goes on with the others, and keeps its lease."""
    with Contest(f"{cluster.url}?namespace=killed", f"{cluster.url}?namespace=killed", LONG_TTL) as contest:
        leader = cluster.leader()
        leader.kill()
        try:
            until(lambda: cluster.leader() is not leader, "another leader", 30)
            pass_time(LONG_TTL)
            contest.lease.check()
            renewals = contest.holder.get("job").renewals  # type: ignore[union-attr]
            assert renewals > 0
            contest.lease.release()
            newer = contest.rival_gets_it()
            contest.holder_gets_it_again(newer)
        finally:
            cluster.start(leader)


def test_all_members_are_restarted_one_by_one(cluster: EtcdCluster) -> None:
    with Contest(f"{cluster.url}?namespace=rolling", f"{cluster.url}?namespace=rolling", LONG_TTL) as contest:
        for member in cluster.members:
            member.kill()
            cluster.start(member)
        contest.lease.check()
        contest.lease.release()
        contest.holder_gets_it_again(contest.rival_gets_it())


def test_a_leader_that_stands_still_and_goes_on(cluster: EtcdCluster) -> None:
    """Another one is elected, and the lease, which only the old one could renew, runs out; its late word is nothing."""
    leader = cluster.leader()
    mine, theirs = f"{leader.url}?namespace=still", f"{cluster.url}?namespace=still"
    with Contest(mine, theirs, TTL) as contest:
        with leader.standing_still():
            newer = contest.rival_gets_it()
        pass_time(TTL / 2)
        newer.check()
        assert contest.lease.state is State.LOST
        contest.holder_gets_it_again(newer)


def test_the_holders_connection_is_swallowed(cluster: EtcdCluster) -> None:
    with Tunnel(cluster.members[0].port) as tunnel:
        mine = f"etcd://127.0.0.1:{tunnel.port}?namespace=swallowed"
        with Contest(mine, f"{cluster.url}?namespace=swallowed", TTL) as contest:
            tunnel.swallow()
            newer = contest.rival_gets_it()
            tunnel.mend()
            contest.holder_gets_it_again(newer)


def test_one_of_the_holders_members_is_swallowed(cluster: EtcdCluster) -> None:
    """It asks another one, in time."""
    with Tunnel(cluster.members[0].port) as tunnel:
        others = ",".join(f"127.0.0.1:{member.port}" for member in cluster.members[1:])
        mine = f"etcd://127.0.0.1:{tunnel.port},{others}?namespace=others"
        with Contest(mine, f"{cluster.url}?namespace=others", LONG_TTL) as contest:
            tunnel.swallow()
            pass_time(LONG_TTL)
            contest.lease.check()
            contest.lease.release()
            contest.holder_gets_it_again(contest.rival_gets_it())


def test_a_member_is_cut_off_with_the_holder_on_it() -> None:
    """First as a follower or leader, whichever it is, and then, once it is back, again."""
    with etcd_cluster_with_island() as (cluster, member, island):
        others = ",".join(f"{m.host}:{m.port}" for m in cluster.members[:2])
        for turn in range(2):
            mine, theirs = f"{member.url}?namespace=island{turn}", f"etcd://{others}?namespace=island{turn}"
            with Contest(mine, theirs, TTL) as contest:
                with island.cut_off():
                    newer = contest.rival_gets_it()
                contest.holder_gets_it_again(newer)
