"""How answers are counted that are no lease's, where a minority's word decides nothing; and whose outcome it is."""

from __future__ import annotations

import contextlib

from lessor.core.lease import Closed
from lessor.core.ops import Acquire, Held, NotHeld, Released, Renew, Renewed, Revoke, Unknown
from lessor.core.paxos.messages import Dropped, HeldBy, Look, Nothing, Refused, Seen
from lessor.core.paxos.proposer import Proposer
from lessor.core.paxos.steps import Kept
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import StoreURL
from lessor.stores.paxos.address import PaxosAddress
from lessor.stores.paxos.calls import Call
from lessor.stores.paxos.engine import Engine
from lessor.stores.paxos.tasks import LookTask, RenewTask, RevokeTask


def told(task: LookTask | RevokeTask, *verdicts: object) -> object:
    """Return what comes of these answers."""
    task.start(0, 0)
    for who, verdict in zip("abc", verdicts, strict=False):
        task.on_verdict(who, 1, verdict, 0, 0, incarnation=1)  # type: ignore[arg-type]
    return task.outcome


def test_a_refusal_of_one_node_fails_neither_a_look_nor_a_revocation() -> None:
    assert told(LookTask(Look("job"), 3), Refused("no"), Seen(()), Seen(())) == [Seen(()), Seen(())]
    assert told(RevokeTask(Revoke("job"), 3), Refused("no"), Dropped(5), Dropped(7)) == Released(7)
    assert told(RevokeTask(Revoke("job"), 3), Nothing(), Refused("no"), Nothing()) == NotHeld()
    assert told(RevokeTask(Revoke("job"), 3), Refused("no")) is None


def test_what_a_majority_keeps_closed_is_not_opened() -> None:
    closed = HeldBy("me", 5, 9, 0, 0, 5, closed=Closed.LOCK_DELAY)
    longer = closed._replace(remaining_ns=10)
    assert told(RevokeTask(Revoke("job"), 3), closed, longer) == Held("me", 5, 10, 0, closed=Closed.LOCK_DELAY)
    assert told(RevokeTask(Revoke("job"), 3), closed, Nothing()) is None
    assert told(RevokeTask(Revoke("job"), 3), closed, Nothing(), Nothing()) == NotHeld()


def test_a_refusal_of_a_majority_is_told() -> None:
    for task in (LookTask(Look("job"), 3), RevokeTask(Revoke("job"), 3)):
        outcome = told(task, Refused("no"), Refused("no"))
        assert isinstance(outcome, Unknown)
        assert str(outcome.error) == "no"


def test_what_comes_with_an_answer_to_an_earlier_renewal_is_the_outcome_of_the_latest() -> None:
    """Else that one would wait until its time is over: a node that was handed something may answer last of all."""
    with contextlib.closing(Engine(PaxosAddress(StoreURL.parse("paxos://a,b,c")), SYSTEM)) as engine:
        lease = Proposer(Acquire("job", "id", "me", 5), acceptors=3, drift=0.0, ballots=engine.ballots)
        earlier, latest = (RenewTask(lease, Renew("job", "id", 1, 5)) for _ in range(2))
        engine._begin(Call([earlier]), earlier, 0, 0)
        earlier.finish(Renewed(5))
        waiting = Call([latest])
        engine._begin(waiting, latest, 0, 0)
        engine._act(Call([earlier]), earlier, [Kept(5, 10, 0)], 0)
        assert latest.outcome == Renewed(5, 0)
        assert not waiting.left
        assert not engine._asking
