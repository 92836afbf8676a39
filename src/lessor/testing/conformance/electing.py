"""Leader election: terms in their order, a loss that starts another campaign, and who leads, for all to see."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lessor.core.ops import Acquire, Granted
from lessor.errors import Cancelled, LeaseLost
from lessor.runtime.cancellation import Cancellation
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import Capability
from lessor.testing.conformance.base import LONG, PATIENCE, Case, Thread, require, until
from lessor.testing.conformance.waiting import queue_length
from lessor.testing.faces import SyncFace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.ops import Outcome
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.faults import FaultyStore
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

    @pytest.mark.usefixtures("only_when_called")
    def test_a_leader_that_resigns_is_followed_at_once(self, face: Face, other: Face, store: Store) -> None:
        require(store, Capability.PUSH)
        leads, waits = threading.Event(), threading.Event()
        resigned: list[int] = []

        def work(term: Any) -> None:
            leads.set()
            assert waits.wait(PATIENCE)
            until(lambda: bool((record := face.get("scheduler")) and record.queue), "the candidate")
            resigned.append(SYSTEM.now())
            assert face.resign(term)
            assert not term.is_leader

        first = Thread(lambda: face.lead("scheduler", work, ttl=LONG))
        assert leads.wait(PATIENCE)
        second = Thread(lambda: other.lead("scheduler", lambda _: SYSTEM.now(), ttl=LONG))
        waits.set()
        assert second.result() > resigned[0]
        first.result()

    def test_a_stopped_candidate_is_not_elected(self, face: Face, other: Face) -> None:
        lease = other.acquire("scheduler", ttl=30)
        campaign = face.client.campaign("scheduler", ttl=30)
        candidate = Thread(lambda: face.stand(campaign, lambda _: None))
        until(lambda: queue_length(other, "scheduler") == 1, "the candidate")
        campaign.stop()
        other.release(lease)
        assert candidate.result() == 0, "elected after it was stopped"
        assert (campaign.stopped, campaign.is_leader) == (True, False)
        other.release(other.acquire("scheduler", ttl=30, wait=PATIENCE))
        assert face.stand(campaign, lambda _: None) == 0, "stopped for good"

    def test_a_grant_that_comes_when_the_campaign_is_stopped_is_given_back(
        self, faulty: FaultyStore, faulty_face: Face, other: Face
    ) -> None:
        campaign = faulty_face.client.campaign("scheduler", ttl=30)
        granted: list[Outcome] = []

        def stop(outcomes: Sequence[Outcome]) -> None:
            granted.extend(one for one in outcomes if isinstance(one, Granted))
            campaign.stop()

        faulty.matching = lambda op: isinstance(op, Acquire)
        faulty.answered = stop
        assert faulty_face.stand(campaign, lambda _: None) == 0
        assert len(granted) == 1
        other.release(other.acquire("scheduler", ttl=30, wait=PATIENCE))

    def test_a_stopped_campaign_ends_after_its_term(self, face: Face, other: Face) -> None:
        campaign = face.client.campaign("scheduler", ttl=30)

        def body(term: Any) -> None:
            campaign.stop()
            term.check()

        assert Thread(lambda: face.stand(campaign, body)).result() == 1
        assert other.leader("scheduler") is None

    def test_a_drained_campaign_hands_its_term_over_and_ends(self, face: Face, other: Face, store: Store) -> None:
        require(store, Capability.HANDOVER)
        campaign = face.client.campaign("scheduler", ttl=30)
        drains: list[Thread] = []

        def body(term: Any) -> None:
            with term.lease.work():
                how = (PATIENCE, other.client.holder, b"as far as here")
                drains.append(Thread(lambda: face.result(campaign.drain(*how))))
                until(term.lease._is_drained, "the drain")

        assert Thread(lambda: face.stand(campaign, body)).result() == 1
        assert drains[0].result()
        assert other.acquire("scheduler", ttl=30, wait=PATIENCE).inherited == b"as far as here"

    def test_a_drained_term_is_the_last_one(self, face: Face, other: Face) -> None:
        """The process takes no more work, so it is no candidate any more."""
        campaign = face.client.campaign("scheduler", ttl=30)
        assert Thread(lambda: face.stand(campaign, lambda term: face.drain(term.lease))).result() == 1
        assert campaign.stopped
        assert other.leader("scheduler") is None

    def test_work_that_waits_to_lead_can_be_cancelled(self, face: Face, other: Face) -> None:
        other.acquire("scheduler", ttl=30)
        cancel = Cancellation()
        waiting = Thread(lambda: face.lead("scheduler", lambda _: None, ttl=30, cancel=cancel))
        until(lambda: queue_length(other, "scheduler") == 1, "the candidate")
        cancel.cancel()
        with pytest.raises(Cancelled):
            waiting.result()
        until(lambda: queue_length(other, "scheduler") == 0, "its way out of the queue")

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
            assert leads.wait(PATIENCE)
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
