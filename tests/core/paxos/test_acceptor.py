from __future__ import annotations

from lessor.core.clock import SECOND
from lessor.core.lease import Closed
from lessor.core.ops import EventKind, Loss, Release, Renew, Revoke, Summons
from lessor.core.paxos.acceptor import KEEP_AHEAD_US, RAISE_BY_US, REPLY_ROOM, Config, Durable
from lessor.core.paxos.ballots import DAY_US, SECOND_US
from lessor.core.paxos.messages import (
    Accept,
    Ack,
    Drop,
    Dropped,
    End,
    Extend,
    Gone,
    HeldBy,
    Look,
    Low,
    Nothing,
    Prepare,
    Promised,
    Refused,
    Request,
    Scan,
    Seen,
    Withdraw,
)
from lessor.core.paxos.riders import fingerprint, riders, stamp
from lessor.core.paxos.starting import start
from tests.core.paxos.cluster import TTL, acceptor, ask, asking


def renewal(owner: str, token: int, ttl_ns: int = TTL) -> Renew:
    return Renew("job", owner, token, ttl_ns)


def test_a_live_lease_of_another_is_never_replaced_whatever_the_number() -> None:
    node = acceptor()
    assert ask(node, Accept(asking("p"), 5), 0) == Ack(TTL, extended=False)
    held = ask(node, Accept(asking("q"), 10**9), 1)
    assert held == HeldBy("holder-p", 5, TTL - 1, 0, 0, 5)
    assert ask(node, Prepare("job", "q", 10**9), 1) == HeldBy("holder-p", 5, TTL - 1, 0, 0, 5)
    assert ask(node, Accept(asking("q"), 10**9), TTL) == Ack(TTL, extended=False, after=5)


def test_a_new_record_needs_a_number_above_all_promises_or_the_promise_itself() -> None:
    node = acceptor()
    assert ask(node, Prepare("job", "p", 7), 0) == Promised()
    assert ask(node, Accept(asking("q"), 6), 0) == Low(7)
    assert ask(node, Accept(asking("q"), 7), 0) == Low(7)
    assert ask(node, Prepare("job", "q", 7), 0) == Low(7)
    assert ask(node, Accept(asking("p"), 7), 0) == Ack(TTL, extended=False)


def test_a_renewal_extends_and_never_shortens() -> None:
    node = acceptor()
    ask(node, Accept(asking("p"), 5), 0)
    assert ask(node, Extend(renewal("p", 5), 5), SECOND) == Ack(TTL, extended=True)
    assert ask(node, Extend(renewal("p", 5, SECOND), 5), SECOND) == Ack(TTL, extended=True)
    assert ask(node, Extend(renewal("p", 5), 4), SECOND) == Low(5)
    assert isinstance(ask(node, Accept(asking("q"), 9), TTL + SECOND - 1), HeldBy)


def test_a_renewal_never_brings_a_lease_back() -> None:
    node = acceptor()
    ask(node, Accept(asking("p"), 5), 0)
    assert ask(node, Extend(renewal("p", 5), 5), TTL) == Gone(Loss.EXPIRED, 0, 5)
    assert ask(node, Look("job"), TTL) == Seen(())
    ask(node, Accept(asking("q"), 6), TTL)
    assert ask(node, Extend(renewal("p", 5), 5), TTL) == Gone(Loss.TAKEN, 0, 6)


def test_a_copy_of_an_old_request_does_not_start_a_second_turn() -> None:
    node = acceptor()
    ask(node, Accept(asking("p"), 5), 0)
    assert ask(node, Accept(asking("p"), 5), TTL) == Gone(Loss.EXPIRED)
    assert ask(node, Accept(asking("p"), 6), TTL) == Ack(TTL, extended=False, after=5)


def test_a_release_closes_whatever_the_owner_has_sent_so_far() -> None:
    node = acceptor()
    assert ask(node, Drop(Release("job", "p"), 5), 0) == Nothing()
    assert ask(node, Accept(asking("p"), 5), 0) == Low(5)
    ask(node, Accept(asking("q"), 6), 0)
    assert ask(node, Drop(Release("job", "q"), 6), 0) == Dropped()
    assert ask(node, Accept(asking("q"), 6), 0) == Low(6)
    assert ask(node, Extend(renewal("q", 6), 6), 0) == Gone(Loss.RELEASED, 0, 6)


def test_an_old_release_leaves_a_newer_lease_alone() -> None:
    node = acceptor()
    ask(node, Accept(asking("p"), 8), 0)
    assert ask(node, Withdraw("job", "p", 7), 0) == Nothing()
    assert ask(node, Drop(Release("job", "q"), 99), 0) == Nothing()
    assert isinstance(ask(node, Accept(asking("r"), 999), 0), HeldBy)


def test_a_release_by_somebody_who_knows_only_the_id() -> None:
    node = acceptor()
    ask(node, Accept(asking("p"), 8), 0)
    assert ask(node, Drop(Release("job", "p")), 0) == Dropped()
    assert ask(node, Accept(asking("p"), 8), 0) == Low(8)


def test_an_abandoned_id_is_never_granted() -> None:
    node = acceptor()
    ask(node, Drop(Release("job", "p", abandon=True)), 0)
    assert ask(node, Accept(asking("p"), 5), 1) == Gone(Loss.RELEASED)
    assert isinstance(ask(node, Accept(asking("q"), 6), 1), Ack)


def test_numbers_far_ahead_and_long_leases_are_refused() -> None:
    node = acceptor()
    wall = 10**15
    assert isinstance(ask(node, Accept(asking("p"), wall + DAY_US + 1), 0, wall), Refused)
    assert isinstance(ask(node, Prepare("job", "p", wall + DAY_US + 1), 0, wall), Refused)
    assert isinstance(ask(node, Accept(asking("p"), wall + DAY_US), 0, wall), Ack)
    assert isinstance(ask(node, Accept(asking("q", "other", ttl_ns=61 * SECOND), wall), 0, wall), Refused)
    assert isinstance(ask(node, Extend(renewal("p", wall, 61 * SECOND), wall + 2 * DAY_US), 0, wall), Refused)
    assert isinstance(ask(node, Accept(asking("q", "other", lock_delay_ns=61 * SECOND), wall), 0, wall), Refused)


def test_what_is_promised_is_written_before_it_is_told() -> None:
    node = acceptor()
    answer = node.handle(Request(1, (Accept(asking("p", lock_delay_ns=SECOND), 50),)), 0, 20)
    assert answer.persist == Durable(50 + RAISE_BY_US, TTL + SECOND)
    again = node.handle(Request(2, (Extend(renewal("p", 50), 50),)), 0, 20)
    assert again.persist == answer.persist, "the first write is not known to be done"
    node.persisted(answer.persist)
    assert node.handle(Request(3, (Extend(renewal("p", 50), 50),)), 0, 20).persist is None


def test_the_mark_is_kept_ahead_of_the_wall_clock() -> None:
    node = acceptor()
    wall = 10**15
    mark = node.top_up(wall)
    assert mark is not None
    node.persisted(mark)
    assert node.top_up(wall) is None
    assert node.handle(Request(1, (Prepare("job", "p", wall + KEEP_AHEAD_US),)), 0, wall).persist is None
    assert node.top_up(wall + RAISE_BY_US) == Durable(wall + 2 * RAISE_BY_US, 0)


def test_to_forget_raises_the_floor_first() -> None:
    node = acceptor()
    ask(node, Accept(asking("p"), 5), 0)
    ask(node, Accept(asking("q", "other"), 3), 0)
    assert node.collect(TTL - 1) == 0
    assert node.collect(TTL, at_most=1) == 1
    assert node.collect(TTL) == 1
    assert node.slots == {}
    assert ask(node, Accept(asking("r"), 5), TTL) == Low(5)
    assert ask(node, Accept(asking("r", "anything"), 4), TTL) == Low(5)


def test_a_batch_gets_a_verdict_each_in_order() -> None:
    node = acceptor()
    items = (Accept(asking("p"), 5), Accept(asking("q"), 6), Drop(Release("job", "p"), 5), Accept(asking("q"), 6))
    reply = node.handle(Request(7, items), 0, 0).reply
    assert reply is not None
    assert (reply.serial, reply.acceptor, reply.incarnation) == (7, "a", 1)
    assert [type(verdict) for verdict in reply.verdicts] == [Ack, HeldBy, Dropped, Ack]


def test_the_lock_delay_keeps_others_out_after_an_expiry_but_not_after_a_release() -> None:
    node = acceptor()
    ask(node, Accept(asking("p", lock_delay_ns=SECOND), 5), 0)
    held = ask(node, Accept(asking("q"), 6), TTL)
    assert isinstance(held, HeldBy)
    assert held.closed is Closed.LOCK_DELAY
    assert isinstance(ask(node, Accept(asking("q"), 6), TTL + SECOND), Ack)
    ask(node, Drop(Release("job", "q"), 6), TTL + SECOND)
    assert isinstance(ask(node, Accept(asking("r"), 7), TTL + SECOND), Ack)


def test_only_force_ends_a_lock_delay_and_no_copy_of_the_request_brings_the_lease_back() -> None:
    node = acceptor()
    ask(node, Accept(asking("p", lock_delay_ns=SECOND), 5), 0)
    refused = ask(node, End(Revoke("job", token=5)), TTL)
    assert isinstance(refused, HeldBy)
    assert (refused.closed, refused.token, refused.remaining_ns) == (Closed.LOCK_DELAY, 5, SECOND)
    assert ask(node, End(Revoke("job", force=True, token=4)), TTL) == Nothing()
    assert ask(node, End(Revoke("job", force=True, token=5)), TTL) == Dropped(0)
    assert not isinstance(ask(node, Accept(asking("p", lock_delay_ns=SECOND), 5), TTL), Ack)
    assert isinstance(ask(node, Accept(asking("q"), 6), TTL), Ack)


def test_a_revocation_opens_what_a_minimum_hold_closes() -> None:
    node = acceptor()
    ask(node, Accept(asking("p", hold_at_least_ns=TTL), 5), 0)
    assert ask(node, Drop(Release("job", "p"), 5), 1) == Dropped(TTL - 1)
    held = ask(node, Accept(asking("q"), 6), 2)
    assert isinstance(held, HeldBy)
    assert held.closed is Closed.HOLD_AT_LEAST
    assert ask(node, End(Revoke("job", token=5)), 3) == Dropped(0)
    assert isinstance(ask(node, Accept(asking("q"), 6), 3), Ack)


def test_waiters_are_called_in_the_order_of_their_tickets() -> None:
    node = acceptor()
    ask(node, Accept(asking("p"), 5), 0)
    first = ask(node, Accept(asking("late", queue=True, notify="L"), 6), 0)
    second = ask(node, Accept(asking("early", queue=True, notify="E"), 7), 0)
    assert isinstance(first, HeldBy)
    assert isinstance(second, HeldBy)
    assert (first.ticket, first.position, second.ticket, second.position) == (1, 0, 2, 1)
    moved = ask(node, Accept(asking("late", queue=True, notify="L"), 8, ticket=9), 0)
    assert isinstance(moved, HeldBy)
    assert (moved.ticket, moved.position) == (9, 1)
    answer = node.handle(Request(1, (Drop(Release("job", "p"), 5),)), 0, 0)
    assert answer.push is not None
    assert [(n.address, n.summons) for n in answer.push.notices] == [("E", Summons.RESERVED)]
    assert answer.push.floor == 5
    assert [event.kind for event in answer.push.events] == [EventKind.RELEASED]
    kept = ask(node, Accept(asking("barging"), 9), 1)
    assert isinstance(kept, HeldBy)
    assert kept.by == ""
    assert isinstance(ask(node, Accept(asking("early", queue=True), 10), 1), Ack)


def test_an_attempt_that_is_withdrawn_keeps_its_place() -> None:
    node = acceptor()
    ask(node, Accept(asking("p"), 5), 0)
    ask(node, Accept(asking("q", queue=True), 6), 0)
    assert ask(node, Withdraw("job", "q", 6), 0) == Nothing()
    ask(node, Drop(Release("job", "p"), 5), 0)
    assert isinstance(ask(node, Accept(asking("barging"), 7), 0), HeldBy)
    assert isinstance(ask(node, Accept(asking("q", queue=True), 8), 0), Ack)


def test_revoked_it_lasts_as_promised_and_by_force_no_longer() -> None:
    node = acceptor()
    ask(node, Accept(asking("p"), 5), 0)
    assert ask(node, End(Revoke("job", token=4)), 0) == Nothing()
    assert ask(node, End(Revoke("job")), SECOND) == Dropped(TTL - SECOND)
    assert ask(node, Extend(renewal("p", 5), 5), SECOND) == Gone(Loss.REVOKED, TTL - SECOND, 5)
    assert isinstance(ask(node, Accept(asking("q"), 6), SECOND), HeldBy)
    assert ask(node, End(Revoke("job", force=True)), SECOND) == Dropped()
    assert ask(node, Accept(asking("p"), 5), SECOND) == Low(5)
    assert ask(node, Extend(renewal("p", 5), 5), SECOND) == Gone(Loss.REVOKED, 0, 5)
    assert isinstance(ask(node, Accept(asking("q"), 6), SECOND), Ack)


def test_a_child_lasts_as_long_as_its_parent_and_the_parents_renewal_names_it() -> None:
    node = acceptor()
    ask(node, Accept(asking("p"), 5), 0)
    assert ask(node, Accept(asking("c", "child", ttl_ns=0, parent=("job", 5)), 6), SECOND) == Ack(
        TTL - SECOND, extended=False
    )
    assert ask(node, Accept(asking("d", "other", ttl_ns=0, parent=("job", 4)), 7), SECOND) == Gone(Loss.EXPIRED)
    session = ask(node, Extend(renewal("p", 5), 5, riders=0), SECOND)
    assert session == Ack(TTL, extended=True, riders=(stamp("child", 6),))
    assert isinstance(ask(node, Accept(asking("x", "child"), 99), TTL + SECOND - 1), HeldBy)
    assert isinstance(ask(node, Accept(asking("x", "child"), 99), TTL + SECOND), Ack)
    assert isinstance(ask(node, Accept(asking("r", "loop", parent=("loop", 1)), 100), 0), Refused)


def test_the_end_of_a_parent_is_the_end_of_its_children() -> None:
    node = acceptor()
    ask(node, Accept(asking("p"), 5), 0)
    ask(node, Accept(asking("c", "child", ttl_ns=0, parent=("job", 5)), 6), 0)
    ask(node, Drop(Release("job", "p"), 5), 0)
    assert ask(node, Look("child"), 0) == Seen(())


def test_the_lock_delay_of_a_child_counts_also_when_its_parent_is_forgotten() -> None:
    node = acceptor()
    assert ask(node, Accept(asking("s", "session"), 5), 0) == Ack(TTL, extended=False)
    middle = asking("m", "middle", ttl_ns=0, parent=("session", 5))
    bottom = asking("b", "bottom", ttl_ns=0, parent=("middle", 6), lock_delay_ns=6 * TTL)
    for n, op in ((6, middle), (7, bottom)):
        assert isinstance(ask(node, Accept(op, n), 0), Ack)
    assert node.collect(3 * TTL) == 2
    assert set(node.slots) == {"bottom"}
    held = ask(node, Accept(asking("x", "bottom"), 8), 3 * TTL)
    assert isinstance(held, HeldBy)
    assert held.remaining_ns == 4 * TTL
    assert isinstance(ask(node, Accept(asking("x", "bottom"), 8), 7 * TTL), Ack)


def test_look_and_scan_show_what_is_held() -> None:
    node = acceptor()
    for number, name in enumerate(("b/2", "a", "b/1", "b/3")):
        ask(node, Accept(asking("p", name, metadata='{"k":"v"}'), 5 + number), 0)
    seen = ask(node, Look("a"), SECOND)
    assert isinstance(seen, Seen)
    assert (seen.records[0].metadata, seen.records[0].remaining_ns) == ({"k": "v"}, TTL - SECOND)
    page = ask(node, Scan("b/", limit=2), SECOND)
    assert isinstance(page, Seen)
    assert ([r.resource for r in page.records], page.more) == (["b/1", "b/2"], True)
    rest = ask(node, Scan("b/", after="b/2", limit=2), SECOND)
    assert isinstance(rest, Seen)
    assert ([r.resource for r in rest.records], rest.more) == (["b/3"], False)


def test_clients_do_not_lead_an_acceptor_on() -> None:
    """A number that was taken doesn't make higher ones acceptable: each would be a day ahead of the one before."""
    node, wall = acceptor(), 10**15
    assert ask(node, Withdraw("job", "p", wall + DAY_US), 0, wall) == Nothing()
    assert isinstance(ask(node, Withdraw("job", "p", wall + DAY_US + 2 * SECOND_US), 0, wall), Refused)
    assert isinstance(ask(node, Prepare("other", "p", wall + DAY_US + 1), 0, wall), Refused)
    assert ask(node, Prepare("other", "p", wall + DAY_US + 1), 1000, wall) == Promised(), "time has gone on"


def test_who_drives_the_floor_up_to_the_limit_shuts_nobody_out() -> None:
    """A little above it is possible; but that doesn't go on for ever, either."""
    node, wall = acceptor(), 10**15
    ask(node, Withdraw("job", "p", wall + DAY_US), 0, wall)
    assert isinstance(ask(node, Accept(asking("q"), wall + DAY_US + SECOND_US), 0, wall), Ack)
    node.floor = wall + 2 * DAY_US - 1
    assert ask(node, Prepare("other", "r", wall + 2 * DAY_US), 0, wall) == Promised()
    assert isinstance(ask(node, Prepare("other", "r", wall + 2 * DAY_US + 1), 0, wall), Refused)


def test_an_acceptor_whose_wall_clock_is_far_behind_goes_on_from_where_the_numbers_were() -> None:
    """It knew them at its start, and its other clock says how long that is ago."""
    wall, day_ns = 10**15, 1000 * DAY_US
    begun = start(Config("a"), 1, 0, durable=Durable(wall, 0))
    node, wrong = begun.acceptor, wall - 300 * DAY_US
    assert isinstance(ask(node, Accept(asking("p"), wall + 1), 10, wrong), Ack)
    assert isinstance(ask(node, Accept(asking("q", "other"), wall + 5 * DAY_US), 5 * day_ns, wrong), Ack)
    assert isinstance(ask(node, Accept(asking("r", "third"), wall + 7 * DAY_US), 5 * day_ns, wrong), Refused)


def test_a_wall_clock_that_is_set_back_takes_nothing_back() -> None:
    node, wall = acceptor(), 10**15
    ask(node, Look("job"), 0, wall + 3 * DAY_US)
    assert isinstance(ask(node, Accept(asking("p"), wall + 4 * DAY_US), 10, wall), Ack)


def test_one_request_looks_at_no_more_riders_than_there_is_room_for_also_if_none_is_shown() -> None:
    node = acceptor()
    ask(node, Accept(asking("s", "session"), 1), 0)
    for number in range(1000):
        ask(node, Accept(asking(f"p{number}", f"r{number}", ttl_ns=0, parent=("session", 1)), number + 2), 0)
    whole = fingerprint(riders(node, node.load("session")))
    renewals = (Extend(Renew("session", "s", 1, TTL), 1, whole),) * 1000
    reply = node.handle(Request(1, renewals), 0, 0).reply
    assert reply is not None
    assert reply.verdicts[0] == Ack(TTL, extended=True)
    assert 100 < sum(isinstance(verdict, Ack) for verdict in reply.verdicts) < 400
    assert isinstance(reply.verdicts[-1], Refused)


def test_what_ran_out_with_its_parent_is_no_more_in_its_family() -> None:
    node, n = acceptor(), 0
    for turn in range(10):
        now = turn * 2 * TTL
        n = turn * 100 + 1
        ask(node, Accept(asking(f"s{turn}", "session"), n), now)
        for number in range(10):
            op = asking(f"p{turn}.{number}", f"r{turn}.{number}", ttl_ns=0, parent=("session", n))
            assert isinstance(ask(node, Accept(op, n + 1 + number), now), Ack)
        node.collect(now)
    assert node.family("session", n)
    assert len(node._families["session"]) == 10


def test_a_reply_shows_no_more_than_it_has_room_for() -> None:
    node, blob = acceptor(), '{"a":"' + 60_000 * "x" + '"}'
    names = [f"r{number:03}" for number in range(100)]
    for name in names:
        ask(node, Accept(asking(name, name, metadata=blob), 1), 0)
    shown: list[str] = []
    more = True
    while more:
        scan = Scan("", shown[-1] if shown else "")
        reply = node.handle(Request(1, (scan, scan, Look("r000"))), 0, 0).reply
        assert reply is not None
        page, again, look = reply.verdicts
        assert isinstance(page, Seen)
        shown += [record.resource for record in page.records]
        more = page.more
        assert len(page.records) * 60_000 < REPLY_ROOM + 60_000
        if more:
            assert again == look == Seen((), more=True)
    assert shown == names


def test_sessions_with_too_many_children_for_one_reply_are_refused_and_not_half_told() -> None:
    node = acceptor()
    ask(node, Accept(asking("parent", "p"), 1), 0)
    for number in range(100):
        ask(node, Accept(asking(f"c{number}", f"{number}", ttl_ns=0, parent=("p", 1)), 2), 0)
    renewing = Extend(Renew("p", "parent", 1, TTL), 1, riders=1)
    reply = node.handle(Request(1, (renewing,) * 10_000), 0, 0).reply
    assert reply is not None
    told = [verdict for verdict in reply.verdicts if isinstance(verdict, Ack)]
    assert {len(ack.riders or ()) for ack in told} == {100}
    assert len(told) * 900 < REPLY_ROOM + 900
    assert len(told) < 10_000
    assert all(isinstance(verdict, Refused) for verdict in reply.verdicts[len(told) :])
