"""Several resources, all or none, and nobody waits in a circle."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lessor.core.ops import Acquire
from lessor.errors import ConfigError, LeaseHeld, LeaseLost
from lessor.testing.child import Child
from lessor.testing.conformance.base import PATIENCE, Case, Thread, until
from lessor.testing.conformance.waiting import queue_length

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.testing.faces import Face
    from lessor.testing.faults import FaultyStore
    from lessor.testing.harness import Harness


class Several(Case):
    """All or none."""

    def test_all_that_are_free_are_taken_in_one_batch(self, faulty: FaultyStore, faulty_face: Face) -> None:
        bundle = faulty_face.result(faulty_face.client.acquire_all(["c", "a", "b"], ttl=30))
        assert list(bundle.tokens) == ["a", "b", "c"]
        assert [[op.resource for op in ops] for ops in faulty.calls if isinstance(ops[0], Acquire)] == [["a", "b", "c"]]
        assert bundle["b"].token == bundle.tokens["b"]
        assert ("a" in bundle, "d" in bundle, len(bundle)) == (True, False, 3)
        faulty_face.result(bundle.release())
        assert (bundle.held, bundle["a"].loss) == (False, "released")
        assert faulty_face.list() == []

    def test_none_is_kept_if_one_is_held(self, face: Face, other: Face) -> None:
        other.acquire("b", ttl=30)
        for wait in (0, 0.1):
            with pytest.raises(LeaseHeld) as caught:
                face.result(face.client.acquire_all(["a", "b", "c"], ttl=30, wait=wait))
            assert caught.value.resource == "b"
            assert [record.resource for record in face.list()] == ["b"]
        until(lambda: queue_length(face, "b") == 0, "the way out")

    def test_it_waits_in_the_order_of_names_and_keeps_nothing_beyond(self, face: Face, other: Face) -> None:
        held = other.acquire("b", ttl=30)
        waiting = Thread(lambda: face.result(face.client.acquire_all(["c", "b", "a"], ttl=30, wait=PATIENCE)))
        until(lambda: queue_length(other, "b") == 1, "the waiter")
        assert other.try_acquire("a", ttl=30) is None
        beyond = other.acquire("c", ttl=30, wait=0)
        other.release(held)
        until(lambda: queue_length(other, "c") == 1, "the waiter, one further")
        other.release(beyond)
        bundle = waiting.result()
        bundle.check()
        assert bundle.tokens["c"] > beyond.token

    def test_many_that_want_some_of_the_same_all_get_them(self, face: Face, lab: Harness) -> None:
        """In any order that they were named in, and without one that waits for another in a circle."""
        names = ["a", "b", "c", "d"]

        def work(seed: int) -> int:
            choice = random.Random(seed)
            for _ in range(8):
                bundle = face.result(face.client.acquire_all(choice.sample(names, 3), ttl=30, wait=PATIENCE))
                bundle.check()
                face.result(bundle.release())
            return seed

        threads = [Thread(partial(work, seed)) for seed in range(4)]
        assert [thread.result(3 * PATIENCE) for thread in threads] == [0, 1, 2, 3]

    def test_the_loss_of_one_is_told(self, face: Face, other: Face, lab: Harness) -> None:
        told: list[Any] = []

        def body(bundle: Any) -> None:
            bundle.on_lost(told.append)
            other.revoke("b", force=True)
            until(lambda: not bundle.held, "the loss")
            with pytest.raises(LeaseLost):
                bundle.check()

        with pytest.raises(LeaseLost) as caught:
            face.inside(face.client.acquire_all(["a", "b", "c"], ttl=lab.steady), body)
        assert caught.value.resource == "b"
        until(lambda: [lease.resource for lease in told] == ["b"], "the word about it")
        assert face.list() == []

    def test_an_error_in_the_body_gives_all_back(self, face: Face) -> None:
        def body(_: Any) -> None:
            raise KeyError("x")

        with pytest.raises(KeyError):
            face.inside(face.client.acquire_all(["a", "b"], ttl=30), body)
        assert face.list() == []

    @pytest.mark.parametrize("names", [[], ["a", "a"], "ab"])
    def test_names_that_cant_be_meant(self, face: Face, names: Any) -> None:
        with pytest.raises(ConfigError, match="several resources"):
            face.result(face.client.acquire_all(names, ttl=30))

    def test_those_that_are_free_are_granted_each_by_itself(self, face: Face, other: Face) -> None:
        other.acquire("b", ttl=30)
        leases = face.result(face.client.try_each(["a", "b", "c"], ttl=30))
        assert sorted(leases) == ["a", "c"]
        assert [record and record.token for record in face.result(face.client.get_each(["c", "a"]))] == [
            leases["c"].token,
            leases["a"].token,
        ]

    def test_a_bundle_that_can_not_be_entered_keeps_nothing_entered(self, face: Face, other: Face) -> None:
        bundle: Any = face.result(face.client.acquire_all(["a", "b"], ttl=30))

        def body(_: Any) -> None:
            with pytest.raises(ConfigError, match=r"again\(\)"):
                face.inside(bundle, lambda _: None)
            assert other.try_acquire("a", ttl=30) is not None
            assert other.try_acquire("b", ttl=30) is None

        face.inside(bundle["b"], body)
        assert other.try_acquire("b", ttl=30) is not None

    def test_one_that_is_asked_for_again_leaves_nothing_behind_of_those_that_had_an_answer(
        self, faulty: FaultyStore, open_face: Callable[[Any], Face]
    ) -> None:
        faulty.guarantees = faulty.guarantees._replace(max_batch=1)
        face = open_face(faulty)
        faulty.matching = lambda op: isinstance(op, Acquire) and op.resource == "b"
        faulty.lost_replies = 2
        leases = face.result(face.client.try_each(["a", "b", "c"], ttl=30))
        assert sorted(leases) == ["a", "b", "c"]
        assert faulty.lost_replies == 0
        assert face.client._engine.waiters._bells == {}

    def test_a_place_that_was_given_up_is_not_waited_at(self, face: Face, other: Face) -> None:
        other.acquire("a", ttl=30)
        other.acquire("b", ttl=30)
        places = face.client.places(["a", "b"], ttl=30)
        places[1].leave()
        with pytest.raises(ConfigError, match="given up"):
            face.result(face.client.wait_any(places, 0))
        assert [len(face.contenders(name)) for name in ("a", "b")] == [0, 0]

    def test_a_lost_reply_to_many_is_asked_for_again(self, faulty: FaultyStore, faulty_face: Face) -> None:
        faulty.matching = lambda op: isinstance(op, Acquire)
        faulty.lost_replies = 2
        bundle = faulty_face.result(faulty_face.client.acquire_all(["a", "b"], ttl=30))
        bundle.check()
        assert len(faulty_face.list()) == 2

    def test_whichever_of_several_is_free_first(self, face: Face, other: Face) -> None:
        held = {name: other.acquire(name, ttl=30) for name in ("a", "b", "c")}
        places = face.client.places(held, ttl=30)
        assert face.result(face.client.wait_any(places, 0)) is None
        assert all(queue_length(face, name) == 1 for name in held)
        waiting = Thread(lambda: face.result(face.client.wait_any(places, PATIENCE)))
        other.release(held["b"])
        lease = waiting.result()
        assert lease.resource == "b"
        assert face.result(face.client.wait_any(places, 0)) is lease
        for place in places:
            place.leave()
        until(lambda: not any(queue_length(face, name) for name in ("a", "c")), "the way out")
        lease.check()

    def test_several_of_a_killed_holder_in_processes(self, face: Face, lab: Harness) -> None:
        names = ["a", "b", "c"]
        with Child(lab.url()) as child:
            before = child.ask("acquire_all", ttl=lab.ttl, resources=names)["tokens"]
            child.kill()
            bundle = face.result(face.client.acquire_all(names, ttl=30, wait=PATIENCE))
        assert all(bundle.tokens[name] > before[name] for name in names)
