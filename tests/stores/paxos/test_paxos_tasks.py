"""How answers are counted that are no lease's: a minority's word decides nothing."""

from __future__ import annotations

from leasehold.core.ops import NotHeld, Released, Revoke, Unknown
from leasehold.core.paxos.messages import Dropped, Look, Nothing, Refused, Seen
from leasehold.stores.paxos.tasks import LookTask, RevokeTask


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


def test_a_refusal_of_a_majority_is_told() -> None:
    for task in (LookTask(Look("job"), 3), RevokeTask(Revoke("job"), 3)):
        outcome = told(task, Refused("no"), Refused("no"))
        assert isinstance(outcome, Unknown)
        assert str(outcome.error) == "no"
