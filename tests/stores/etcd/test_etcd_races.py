"""What could go wrong between two steps: another thread, or an answer that gets lost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Release, Released, Renew, Renewed, Revoke
from lessor.stores.etcd.members import Members
from lessor.stores.etcd.results import Results
from lessor.stores.etcd.tokens import Tokens
from lessor.stores.etcd.trouble import Elsewhere
from lessor.testing.conformance.base import PATIENCE, Thread, new_id, ns, pass_time, take, taken, until
from tests.servers.etcd import etcd_server

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from lessor.stores.etcd import EtcdStore
    from tests.servers.etcd import EtcdServer


def test_an_offset_is_never_lowered_by_a_thread_that_was_slower(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads of one client have seen tokens of a cluster that is no more, the one higher ones than the other."""
    seen = taken(store, "before", 30).token
    raise_above = Tokens.raise_above
    quicker: list[Granted] = []

    def slowly(self: Tokens, *args: Any) -> None:
        monkeypatch.setattr(Tokens, "raise_above", raise_above)
        quicker.append(taken(store, "quick", 30, seen_token=seen + 1_000_000))
        raise_above(self, *args)

    monkeypatch.setattr(Tokens, "raise_above", slowly)
    slower = taken(store, "slow", 30, seen_token=seen + 1000)
    assert slower.token > quicker[0].token > seen + 1_000_000


def test_a_grant_whose_answer_got_lost_is_above_what_was_seen_too(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found again by its id, and was made with a token of revisions that have started over."""
    seen = taken(store, "before", 30).token + 1000
    transact = Members.transact

    def loses_the_answer(self: Members, request: bytes, give_up: int) -> Any:
        answer = transact(self, request, give_up)
        if b"/job" in request and answer["responses"][0].get("transaction"):
            monkeypatch.setattr(Members, "transact", transact)
            raise Elsewhere("etcd", "no answer")
        return answer

    monkeypatch.setattr(Members, "transact", loses_the_answer)
    assert taken(store, "job", 30, seen_token=seen).token > seen
    assert Members.transact is transact, "an answer got lost"


def test_what_undoes_a_grant_leaves_nothing_that_keeps_others_out(store: EtcdStore) -> None:
    seen = taken(store, "before", 30).token + 1000
    hour = 3600 * SECOND
    granted = taken(store, "job", 30, seen_token=seen, lock_delay_ns=hour, hold_at_least_ns=hour)
    assert granted.token > seen


def test_a_login_that_another_thread_drops_meanwhile_is_no_wrong_login(
    open_store: Callable[[str], EtcdStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    with etcd_server() as server:
        server.ctl("user", "add", "root:secret")
        server.ctl("user", "grant-role", "root", "root")
        server.ctl("auth", "enable")
        store = open_store(f"etcd://root:secret@127.0.0.1:{server.port}")
        taken(store, "job", 30)
        connection = Members._connection

        def meanwhile(self: Members, give_up: int) -> Any:
            wire = connection(self, give_up)
            self.log_out(self._login)
            return wire

        monkeypatch.setattr(Members, "_connection", meanwhile)
        [answer] = store.apply([Acquire("other", new_id(), "me", ns(30))], timeout=PATIENCE)
        assert isinstance(answer, Granted), answer


def test_those_who_ask_at_once_do_not_exceed_the_bound_of_a_queue(open_store: Callable[[], EtcdStore]) -> None:
    stores = [open_store() for _ in range(4)]
    taken(stores[0], "job", 30)
    asking = [Thread(partial(take, s, "job", 30, queue=True, queue_limit=2)) for s in stores for _ in range(3)]
    answers = [thread.result() for thread in asking]
    assert sorted(isinstance(answer, Held) and answer.refused for answer in answers) == [False] * 2 + [True] * 10
    assert len(stores[0].waiters("job", timeout=PATIENCE)) == 2


def test_a_revocation_left_half_done_is_finished_by_whoever_waits(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a child that was revoked would stay closed for as long as its parent is renewed."""
    top = new_id()
    token = taken(store, "top", 2, top).token
    taken(store, "part", 0, parent=("top", token))
    with monkeypatch.context() as patch:
        patch.setattr(Results, "_shorten", lambda _self, _task, outcome, *_: outcome)
        assert isinstance(store.apply([Revoke("part")], timeout=PATIENCE)[0], Released)
    waiter = new_id()

    def granted() -> bool:
        assert isinstance(store.apply([Renew("top", top, token, ns(2))], timeout=PATIENCE)[0], Renewed)
        pass_time(0.2)
        return isinstance(take(store, "part", 30, waiter, queue=True), Granted)

    until(granted, "its end")


def test_what_is_handed_over_is_not_taken_by_the_shortcut_of_whoever_was_called(
    open_store: Callable[[], EtcdStore],
) -> None:
    """The first in the queue is called, too, to learn when to come; what it remembers then is that it was called."""
    here, there = open_store(), open_store()
    warm, holder, first = new_id(), new_id(), new_id()
    taken(there, "other", 30, warm)
    there.apply([Release("other", warm)], timeout=PATIENCE)  # so that it has an etcd lease for the shortcut
    taken(here, "job", 30, holder)
    subscription = there.subscribe()
    try:
        assert isinstance(take(there, "job", 30, first, queue=True, notify=subscription.address), Held)
        here.apply([Release("job", holder, "heir", state="left", reserve_ns=ns(30))], timeout=PATIENCE)
        until(lambda: bool(subscription.get(0.1)), "the call")
        assert isinstance(take(there, "job", 30, first, queue=True, notify=subscription.address), Held)
        heir = here.apply([Acquire("job", new_id(), "heir", ns(30))], timeout=PATIENCE)[0]
        assert isinstance(heir, Granted)
        assert heir.state == "left"
    finally:
        subscription.close()


def test_who_stands_behind_a_dead_waiter_is_called_when_its_turn_has_come(open_store: Callable[[], EtcdStore]) -> None:
    """By the next one, which counts the turns: that one has nothing from the dead one's, and would have it all else."""
    here, there, behind = open_store(), open_store(), open_store()
    holder, dead, second, third = new_id(), new_id(), new_id(), new_id()
    taken(here, "job", 30, holder)
    subscription = there.subscribe()
    try:
        assert isinstance(take(here, "job", 30, dead, queue=True, notify="nobody"), Held)
        assert isinstance(take(there, "job", 30, second, queue=True, notify=subscription.address), Held)
        assert isinstance(take(behind, "job", 30, third, queue=True), Held)
        here.apply([Release("job", holder)], timeout=PATIENCE)
        waits: list[Held] = []
        while not subscription.get(0):
            held = take(behind, "job", 30, third, queue=True)
            assert isinstance(held, Held), f"it was passed over after {waits}"
            waits.append(held)
            pass_time(held.remaining_ns / SECOND)
        assert isinstance(take(there, "job", 30, second, queue=True, notify=subscription.address), Granted)
    finally:
        subscription.close()


def test_who_was_to_be_called_with_what_was_refused_is_called_with_the_next_try(
    open_store: Callable[[], EtcdStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes behind a dead waiter calls the next one as it joins; and somebody else joins at that moment."""
    here, there, behind = open_store(), open_store(), open_store()
    holder, dead, second = new_id(), new_id(), new_id()
    taken(here, "job", 30, holder)
    subscription = there.subscribe()
    transact = Members.transact
    refused: list[object] = []

    def meanwhile(self: Members, request: bytes, give_up: int) -> Any:
        if f"/notice/{subscription.address}".encode() in request and not refused:
            refused.append(take(here, "job", 30, queue=True))
        return transact(self, request, give_up)

    try:
        assert isinstance(take(here, "job", 30, dead, queue=True, notify="nobody"), Held)
        assert isinstance(take(there, "job", 30, second, queue=True, notify=subscription.address), Held)
        here.apply([Release("job", holder)], timeout=PATIENCE)
        monkeypatch.setattr(Members, "transact", meanwhile)
        while not refused:
            pass_time(0.1)
            assert isinstance(take(behind, "job", 30, queue=True, queue_limit=1000), Held)
        assert subscription.get(PATIENCE)
    finally:
        subscription.close()


def test_a_family_that_came_back_within_its_grace_ends_at_once(
    store: EtcdStore, server: EtcdServer, namespace: str
) -> None:
    top, part = new_id(), new_id()
    token = taken(store, "top", 1, top, grace_ns=ns(30)).token
    child = taken(store, "part", 0, part, parent=("top", token)).token
    until(lambda: store.read(["top", "part"], timeout=PATIENCE) == [None, None], "the expiry")
    renewals = [Renew("top", top, token, ns(30)), Renew("part", part, child, ns(30))]
    for renewal in renewals:
        assert isinstance(store.apply([renewal], timeout=PATIENCE)[0], Renewed)
    assert isinstance(take(store, "part", 30), Held)
    assert store.apply([Release("top", top)], timeout=PATIENCE) == [Released()]
    assert '"state":"held"' not in server.ctl("get", "--prefix", f"/lessor/{namespace}/lease/")
