"""A follower that is cut off from its leader, and goes on answering its clients whatever it can answer alone."""

from __future__ import annotations

import pytest

from leasehold import Client
from tests.servers.zookeeper import ensemble
from tests.stores.zookeeper.holders import PATIENCE, Holder, Successor, hand_over_after_a_loss


@pytest.mark.parametrize("ttl", [1, 2])
def test_a_holder_whose_server_is_cut_off_from_its_leader_stops_in_time(ttl: float) -> None:
    with ensemble(tunnels=True) as three:
        follower = three.followers[0]
        with Client(f"{follower.url}/cut", timeout=20) as one, Client(f"{three.leader.url}/cut", timeout=20) as other:
            holder, successor = Holder(one, "job", ttl), Successor(other, "job", 8)
            with three.cut_off(follower):
                newer = hand_over_after_a_loss(holder, successor)
            newer.release()
            with one.acquire("job", ttl=5, wait=PATIENCE) as again:
                assert again.token > newer.token
