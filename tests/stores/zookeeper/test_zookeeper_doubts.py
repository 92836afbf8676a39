"""Requests whose answers got lost: found again by their ids, and never given back behind the back of who holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lessor.core.ops import Acquire, Granted, Held, Release, Renew, Renewed, Unknown
from lessor.runtime.clock import SYSTEM
from lessor.stores.zookeeper import acquiring
from lessor.testing.conformance.base import PATIENCE, new_id, ns, taken, until

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from lessor.core.ops import Outcome
    from lessor.stores.zookeeper import ZooKeeperStore


def do(store: ZooKeeperStore, op: Any, timeout: float = PATIENCE) -> Outcome:
    return store.apply([op], timeout=timeout)[0]


def test_a_waiter_that_finds_its_grant_again_keeps_it(opened: Callable[[], ZooKeeperStore]) -> None:
    one, other = opened(), opened()
    first, second = new_id(), new_id()
    taken(one, "job", 30, first)
    subscription = other.subscribe()
    wanted = Acquire("job", second, "waiter", ns(1), queue=True, notify=subscription.address)
    assert isinstance(do(other, wanted), Held)
    do(one, Release("job", first))
    until(lambda: bool(subscription.get(1)), "the call")
    assert isinstance(do(other, wanted, timeout=0), Unknown)  # sent, and not waited for
    again = do(other, wanted)
    assert isinstance(again, Granted)
    enough = SYSTEM.now() + ns(3)  # longer than it would have taken to give it back
    while SYSTEM.now() < enough:
        assert isinstance(do(other, Renew("job", second, again.token, ns(1))), Renewed)
    subscription.close()


def test_a_grant_that_nobody_heard_of_is_given_back(opened: Callable[[], ZooKeeperStore]) -> None:
    one, other = opened(), opened()
    taken(one, "warm", 1)  # a session is there
    assert isinstance(do(one, Acquire("job", new_id(), "me", ns(1)), timeout=0), Unknown)
    until(lambda: other.read(["job"], timeout=PATIENCE) != [None], "the grant")
    until(lambda: other.read(["job"], timeout=PATIENCE) == [None], "its end")


def test_a_grant_below_what_was_seen_is_given_back_even_if_that_fails_at_first(
    opened: Callable[[], ZooKeeperStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The namespace was set up anew; and the answer to the request that undoes the grant gets lost."""
    store = opened()
    seen = taken(store, "before", 1).token + 1000
    lift = acquiring.Acquisition._lift

    def breaks_off(self: acquiring.Acquisition, token: int) -> Any:
        monkeypatch.setattr(acquiring.Acquisition, "_lift", lift)
        if token:
            raise TimeoutError
        yield []

    monkeypatch.setattr(acquiring.Acquisition, "_lift", breaks_off)
    assert isinstance(do(store, Acquire("job", new_id(), "me", ns(1), seen_token=seen)), Unknown)
    until(lambda: store.read(["job"], timeout=PATIENCE) == [None], "its end")
    assert taken(store, "job", 1, seen_token=seen).token > seen


def test_a_grant_is_not_made_with_what_was_added_to_tokens_before(
    store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread of the same client raises it while the transaction is put together."""
    seen = taken(store, "before", 30).token
    node = acquiring.Acquisition._node
    quicker: list[Granted] = []

    def slowly(self: acquiring.Acquisition, offset: int) -> dict[str, Any]:
        monkeypatch.setattr(acquiring.Acquisition, "_node", node)
        quicker.append(taken(store, "quick", 30, seen_token=seen + 1_000_000))
        return node(self, offset)

    monkeypatch.setattr(acquiring.Acquisition, "_node", slowly)
    assert taken(store, "slow", 30).token > quicker[0].token
