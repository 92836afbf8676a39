"""Leader election: terms in their order, a loss that starts another campaign, and who leads, for all to see."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lessor.errors import LeaseLost
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import Capability
from lessor.testing.conformance.base import Case, Thread, require, until
from lessor.testing.faces import SyncFace

if TYPE_CHECKING:
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.harness import Harness


def until_lost(term: Any) -> None:
    """Work as a thread does that looks now and then."""
    nap = threading.Event()
    while True:
        term.check()
        nap.wait(0.002)


class Electing(Case):
    """An election stands on a lease, and on nothing else."""

    def test_each_body_is_a_term_with_a_higher_token(self, face: Face, other: Face) -> None:
        tokens: list[int] = []

        def body(term: Any) -> None:
            leader = other.leader("scheduler")
            assert leader is not None
            assert leader.token == term.token
            assert term.is_leader
            tokens.append(term.token)

        face.campaign("scheduler", body, terms=3, ttl=30)
        assert len(tokens) == 3
        assert tokens == sorted(set(tokens)), "tokens out of order"
        assert other.leader("scheduler") is None

    def test_the_work_returns_while_leading_and_that_is_its_end(self, face: Face, other: Face) -> None:
        assert face.lead("scheduler", lambda term: term.token, ttl=30) > 0
        assert other.try_acquire("scheduler") is not None

    def test_a_loss_ends_the_term_and_starts_another_campaign(self, face: Face, other: Face) -> None:
        prepared: list[int] = []
        losses: list[LeaseLost] = []
        tokens: list[int] = []

        def ready() -> int:
            prepared.append(len(prepared))
            return len(prepared)

        def work(term: Any) -> str:
            tokens.append(term.token)
            assert term.prepared == len(tokens)
            if len(tokens) == 1:
                other.revoke("scheduler", force=True)
                try:
                    until_lost(term)
                except LeaseLost as error:
                    losses.append(error)
                    raise
            return "done"

        assert face.lead("scheduler", work, ttl=30, ready=ready) == "done"
        assert tokens == sorted(set(tokens)), "tokens out of order"
        assert [len(prepared), len(losses), len(tokens)] == [2, 1, 2]

    def test_an_error_of_the_work_comes_out_and_ends_the_term(self, face: Face, other: Face) -> None:
        def work(term: Any) -> None:
            raise KeyError(term.token)

        try:
            face.lead("scheduler", work, ttl=30)
        except KeyError:
            assert other.leader("scheduler") is None
        else:
            raise AssertionError("it got lost")

    def test_a_leader_that_resigns_is_followed_at_once(self, face: Face, other: Face, store: Store) -> None:
        require(store, Capability.PUSH)
        leads, waits = threading.Event(), threading.Event()
        resigned: list[int] = []

        def work(term: Any) -> None:
            leads.set()
            assert waits.wait(10)
            until(lambda: bool((record := face.get("scheduler")) and record.queue), "the candidate")
            resigned.append(SYSTEM.now())
            assert face.resign(term)
            assert not term.is_leader

        first = Thread(lambda: face.lead("scheduler", work, ttl=30))
        assert leads.wait(10)
        second = Thread(lambda: other.lead("scheduler", lambda _: SYSTEM.now(), ttl=30))
        waits.set()
        took = (second.result() - resigned[0]) / 1e9
        first.result()
        assert took < 2

    def test_who_leads_since_when_and_with_which_token(self, face: Face, other: Face) -> None:
        assert face.leader("scheduler") is None
        term = other.acquire("scheduler", ttl=30)
        leader = face.leader("scheduler")
        assert leader is not None
        assert (leader.holder, leader.token) == (term.holder, term.token)
        record = other.get("scheduler")
        assert record is not None
        assert abs(leader.since - record.granted) < timedelta(
            seconds=1
        )  # of several nodes, each has a clock of its own

    def test_the_stream_of_leaders_begins_with_who_leads_and_tells_every_change(self, face: Face, other: Face) -> None:
        first = other.acquire("scheduler", ttl=30)
        seen: list[Any] = []
        stream = Thread(lambda: face.observe("scheduler", 4, seen))
        until(lambda: len(seen) == 1, "the leader")
        other.acquire("scheduler/not", ttl=30)
        other.release(first)
        until(lambda: len(seen) == 2, "its end")
        second = other.acquire("scheduler", ttl=30)
        until(lambda: len(seen) == 3, "the next")
        other.release(second)
        stream.result()
        assert [None if leader is None else leader.token for leader in seen] == [first.token, None, second.token, None]

    def test_a_preferred_candidate_leads_before_those_who_came_first(
        self, face: Face, other: Face, store: Store
    ) -> None:
        require(store, Capability.PRIORITY | Capability.CONTENDERS | Capability.PUSH)
        lease = other.acquire("scheduler", ttl=30)
        order: list[str] = []
        plain = Thread(lambda: other.lead("scheduler", lambda _: order.append("plain"), ttl=30))
        until(lambda: len(face.contenders("scheduler")) == 1, "the first candidate")
        preferred = Thread(lambda: face.lead("scheduler", lambda _: order.append("preferred"), ttl=30, priority=5))
        until(lambda: len(face.contenders("scheduler")) == 2, "the second candidate")
        other.release(lease)
        preferred.result()
        plain.result()
        assert order == ["preferred", "plain"]

    def test_leadership_is_moved_to_a_candidate_by_name(self, face: Face, lab: Harness, store: Store) -> None:
        require(store, Capability.HANDOVER | Capability.CONTENDERS | Capability.PUSH)
        one, two = SyncFace(lab.url(), holder="one"), SyncFace(lab.url(), holder="two")
        try:
            leads = threading.Event()

            def move(term: Any) -> None:
                leads.set()
                until(lambda: len(face.contenders("scheduler")) == 2, "both candidates")
                assert face.hand_over(term, "two", b"where we are")

            first = Thread(lambda: face.lead("scheduler", move, ttl=30))
            assert leads.wait(10)
            order: list[tuple[str, bytes]] = []

            def note(term: Any) -> None:
                order.append((term.lease.holder, term.lease.inherited))

            others = [Thread(lambda: one.lead("scheduler", note, ttl=30))]
            until(lambda: len(face.contenders("scheduler")) == 1, "the first candidate")
            others.append(Thread(lambda: two.lead("scheduler", note, ttl=30)))
            for thread in (first, *others):
                thread.result()
            assert order == [("two", b"where we are"), ("one", b"")]
        finally:
            one.close()
            two.close()
