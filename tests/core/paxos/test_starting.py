from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Release, Renew
from lessor.core.paxos.acceptor import Config, Durable
from lessor.core.paxos.messages import Accept, Ack, Drop, Extend, HeldBy, Low, Request, Seed, SeedQuery, Withdraw
from lessor.core.paxos.riders import stamp
from lessor.core.paxos.starting import Seeding, Snapshot, shut_down, silence, start
from tests.core.paxos.cluster import TTL, acceptor, ask, asking

CONFIG = Config("a")
LATER = 10**15


def test_after_a_crash_it_is_silent_and_takes_no_number_up_to_its_mark() -> None:
    node = start(CONFIG, 2, LATER, durable=Durable(500, TTL)).acceptor
    request = Request(1, (Accept(asking("q"), 600),))
    assert node.handle(request, LATER + TTL, 0).reply is None
    assert node.seed(SeedQuery(1), LATER + TTL) is None
    over = LATER + silence(TTL, CONFIG.drift)
    assert over > LATER + TTL
    assert ask(node, Accept(asking("q"), 500), over) == Low(500)
    assert ask(node, Accept(asking("q"), 501), over) == Ack(TTL, extended=False, after=500)


def test_the_silence_is_that_of_the_longest_lease_and_not_of_todays_settings() -> None:
    node = start(Config("a", max_ttl_ns=SECOND), 2, 0, durable=Durable(500, TTL)).acceptor
    assert node.silent_until_ns == silence(TTL, CONFIG.drift)


def test_after_a_clean_shutdown_all_goes_on_at_once() -> None:
    node = acceptor()
    ask(node, Accept(asking("p", lock_delay_ns=SECOND), 5), 0)
    ask(node, Accept(asking("c", "child", ttl_ns=0, parent=("job", 5)), 6), 0)
    node.floor = 3
    snapshot = shut_down(node, SECOND)
    assert snapshot is not None
    again = start(CONFIG, 2, LATER, durable=node.durable, snapshot=snapshot)
    assert again.delete_snapshot
    held = ask(again.acceptor, Accept(asking("q"), 9), LATER)
    assert held == HeldBy("holder-p", 5, TTL - SECOND, 0, 0, 5)
    assert ask(again.acceptor, Extend(Renew("job", "p", 5, TTL), 5, riders=0), LATER) == Ack(
        TTL, extended=True, riders=(stamp("child", 6),)
    )
    assert again.acceptor.floor == 3


@pytest.mark.parametrize("heir_waits", [True, False])
@pytest.mark.parametrize("heir_is_in", [True, False])
def test_a_clean_shutdown_keeps_what_was_handed_over(*, heir_waits: bool, heir_is_in: bool) -> None:
    node = acceptor()
    ask(node, Accept(asking("p"), 5), 0)
    if heir_waits:
        ask(node, Accept(asking("q", queue=True), 6), 0)
    ask(node, Drop(Release("job", "p", successor="holder-q", state="left", reserve_ns=TTL), 5), 0)
    if heir_is_in:
        assert ask(node, Accept(asking("q"), 7), 0) == Ack(TTL, extended=False, state="left", after=5)
    snapshot = shut_down(node, SECOND)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot), type=Snapshot)
    node = start(CONFIG, 2, LATER, durable=node.durable, snapshot=again).acceptor
    now = LATER + TTL - SECOND - 1
    if heir_is_in:  # its attempt comes to nothing
        ask(node, Withdraw("job", "q", 7), now)
    assert isinstance(ask(node, Accept(asking("z"), 8), now), HeldBy)
    assert ask(node, Accept(asking("q"), 9), now) == Ack(TTL, extended=False, state="left", after=5)


def test_a_shutdown_during_the_silence_keeps_what_is_left_of_it() -> None:
    node = start(CONFIG, 2, 0, durable=Durable(500, TTL)).acceptor
    snapshot = shut_down(node, SECOND)
    assert snapshot is not None
    again = start(CONFIG, 3, LATER, durable=Durable(500, TTL), snapshot=snapshot).acceptor
    assert again.is_silent(LATER + TTL - SECOND)
    assert again.floor == 500


def test_a_new_cluster_begins_at_once() -> None:
    begun = start(CONFIG, 1, 0, durable=None, new_cluster=True)
    assert isinstance(ask(begun.acceptor, Accept(asking("p"), 1), 0), Ack)
    assert begun.persist is not None
    again = start(CONFIG, 2, LATER, durable=begun.persist._replace(span_ns=TTL), new_cluster=True)
    assert again.acceptor.is_silent(LATER), "it is new only once"


def test_a_lost_disk_means_silence_and_then_the_word_of_a_majority_of_the_others() -> None:
    node = start(CONFIG, 2, 0, durable=None).acceptor
    seeding = Seeding(node, acceptors=5)
    asked = seeding.query().serial
    over = silence(CONFIG.longest_span_ns, CONFIG.drift)
    assert not seeding.may_ask(over - 1)
    assert seeding.on_seed(Seed(asked, "b", 900), over - 1) is None, "what was told before the end of it doesn't count"
    assert seeding.may_ask(over)
    for who in ("b", "b", "c", "a"):
        assert seeding.on_seed(Seed(asked, who, 700), over) is None
    assert shut_down(node, over) is None
    assert node.top_up(10**15) is None, "with a mark on it, the disk would look as if it had never been lost"
    assert node.handle(Request(1, (Accept(asking("p"), 9999),)), over, 0).reply is None
    mark = seeding.on_seed(Seed(asked, "d", 800), over)
    assert mark == Durable(800, 0)
    seeding.finish(mark)
    assert ask(node, Accept(asking("p"), 800), over) == Low(800)
    assert isinstance(ask(node, Accept(asking("p"), 801), over), Ack)
    assert node.seed(SeedQuery(4), over) == Seed(4, "a", node.durable.high_water, CONFIG.longest_span_ns)


def test_a_lost_disk_means_silence_for_as_long_as_the_others_leases_may_last() -> None:
    """The node may have been started anew with a shorter maximum than its predecessor had."""
    node = start(CONFIG, 2, 0, durable=None).acceptor
    seeding = Seeding(node, acceptors=3)
    over, longer = silence(CONFIG.longest_span_ns, CONFIG.drift), 3 * CONFIG.longest_span_ns
    early = seeding.query().serial
    assert seeding.on_seed(Seed(early, "b", 700, CONFIG.longest_span_ns), over) is None
    assert seeding.on_seed(Seed(early, "c", 700, longer), over) is None
    over = silence(longer, CONFIG.drift)
    assert not seeding.may_ask(over - 1)
    asked = seeding.query().serial
    assert seeding.on_seed(Seed(early, "b", 700, CONFIG.longest_span_ns), over) is None, "that was before the end of it"
    assert seeding.on_seed(Seed(asked, "b", 800, CONFIG.longest_span_ns), over) is None
    assert seeding.on_seed(Seed(asked, "c", 900, longer), over) == Durable(900, 0)


def test_each_silence_that_turns_out_too_short_means_that_all_are_asked_again() -> None:
    node = start(CONFIG, 2, 0, durable=None).acceptor
    seeding = Seeding(node, acceptors=3)
    spans = [times * CONFIG.longest_span_ns for times in (1, 2, 3)]
    early = []
    for span, longer in pairwise(spans):
        now, serial = silence(span, CONFIG.drift), seeding.query().serial
        early.append(serial)
        assert seeding.on_seed(Seed(serial, "b", 700, spans[0]), now) is None
        assert seeding.on_seed(Seed(serial, "c", 700, longer), now) is None
        assert node.silent_until_ns == silence(longer, CONFIG.drift)
    now, asked = silence(spans[-1], CONFIG.drift), seeding.query().serial
    for serial in early:
        for who in ("b", "c"):
            assert seeding.on_seed(Seed(serial, who, 700, spans[0]), now) is None, "that was before the end of it"
    assert seeding.on_seed(Seed(asked, "c", 900, spans[-1]), now) is None, "and so was what the other one said"
    assert seeding.on_seed(Seed(asked, "b", 800, spans[0]), now) == Durable(900, 0)


def test_a_node_tells_of_the_longest_lease_that_it_may_ever_have_had() -> None:
    node = start(Config("a", max_ttl_ns=SECOND), 2, 0, durable=Durable(500, 100 * SECOND)).acceptor
    assert node.seed(SeedQuery(4), 200 * SECOND) == Seed(4, "a", 500, 100 * SECOND)


def test_a_snapshot_without_its_mark_is_of_no_use() -> None:
    begun = start(CONFIG, 2, 0, durable=None, snapshot=Snapshot(5, ()))
    assert begun.delete_snapshot
    assert not begun.acceptor.seeded
