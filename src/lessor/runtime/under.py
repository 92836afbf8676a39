"""A lease that stands under another one: it lasts no longer than its parent does, and asks it each time.

So the renewal of a parent costs nothing for those under it, however many there are, and its loss is theirs at once.
Some have a TTL of their own, and are renewed by themselves. Others *ride*: they have none, and are carried along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.core.holder import Confirmed, Over, State, Tick
from lessor.core.ops import Loss, Renewed

if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from lessor.core.claim import Take
    from lessor.core.holder import Holder, HolderEvent, Signal
    from lessor.core.ops import Acquire, Outcome, Renew
    from lessor.core.timing import Timing
    from lessor.runtime.tenure import Tenure

    Base: TypeAlias = Tenure
else:
    Base = object

NEVER_NS: Final = 1 << 62
"""The own deadline of a lease that rides."""


class Under(Base):
    """Mixed into a face's lease. The deadline that everybody reads is the sooner of its own and its parent's."""

    _own_deadline_ns: int
    _parent: Tenure
    _riding: bool

    def __init__(self, engine: Any, op: Acquire, timing: Timing, take: Take, *rest: Any, parent: Tenure) -> None:
        self._parent = parent
        self._riding = op.ttl_ns == 0
        if self._riding:
            take = take._replace(deadline_ns=NEVER_NS)
        super().__init__(engine, op, timing, take, *rest)

    @property
    def _deadline_ns(self) -> int:
        return min(self._own_deadline_ns, self._parent._deadline_ns)

    @_deadline_ns.setter
    def _deadline_ns(self, deadline_ns: int) -> None:
        self._own_deadline_ns = deadline_ns

    @property
    def _over_ns(self) -> int:
        return min(self._belief.over_ns, self._parent._over_ns)

    @property
    def _carried(self) -> bool:  # type: ignore[override]
        return self._riding and self._belief.ending is None

    @property
    def state(self) -> State:
        """HELD, JEOPARDY or LOST. One that is carried along is in jeopardy when its parent is."""
        self._tick()
        own = self._belief.state
        return self._parent.state if self._riding and own is State.HELD else own

    def _advance(self, event: HolderEvent, now: int) -> None:
        super()._advance(event, now)
        if self._belief.state is State.LOST and self._parent._children is not None:
            self._parent._children.pop(self, None)

    def _tick(self, now: int | None = None) -> None:
        if self._belief.state is State.LOST:
            return
        if now is None:
            now = self._now()
        if now >= self._own_deadline_ns:
            self._advance(Tick(), now)
            return
        self._parent._tick(now)  # whose loss is ours
        if not self._riding and now >= self._parent._deadline_ns:
            # It is stopped, within its grace; the store has nothing of ours left that could be renewed.
            self._advance(Over(Loss.PARENT), now)

    def _hear(self, signal: Signal, now: int) -> None:
        if not self._riding:
            self._tick(now)
            return
        for wanted, callback in list(self._listeners or ()):
            if wanted is signal:
                self._call(callback)
        self._pass_on(signal, now)

    def _renewal(self, now: int) -> Renew | None:
        # One that is to end rides no longer: the store lets go of it everywhere once its time is over.
        if self._riding and self._belief.ending not in {None, Loss.STALLED}:
            return None
        return super()._renewal(now)

    def _confirm(self, belief: Holder, sent_ns: int, now: int) -> bool:
        return not self._riding and super()._confirm(belief, sent_ns, now)

    def _answer(self, outcome: Outcome, sent_ns: int, now: int, jitter: float) -> int | None:
        if self._riding and isinstance(outcome, Renewed):
            self._advance(Confirmed(NEVER_NS), now)  # it is there; for how long, its parent knows
            return None
        return super()._answer(outcome, sent_ns, now, jitter)
