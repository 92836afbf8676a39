"""Which ``with`` blocks run on a lease. The last one to end gives it back, also where an interrupt has cut it off."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol, cast

from lessor.core.holder import Over, State
from lessor.core.ops import Loss
from lessor.errors import ConfigError
from lessor.runtime.blocks import Exit

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from lessor.core.holder import Holder, HolderEvent
    from lessor.runtime.engine import Engine
    from lessor.runtime.holding import Holding
    from lessor.runtime.tenure import Tenure


class Deserted(Protocol):
    """A block that may be cut off."""

    def desert(self, orphaned: Callable[[Holding], object], /) -> None:
        """Do what the end of the block would have done, or have its lease given back, which may be gone."""
        ...


class Visit(weakref.ref[Any]):
    """One block on a lease: a weak reference to what lives as long as the block does."""

    __slots__ = ("holding", "left", "own")

    holding: Holding
    own: bool
    """Whether it is the lease's own ``with``, and not one that has entered it again."""
    left: bool

    @classmethod
    def of(cls, block: object, holding: Holding, report: Callable[[Visit], object], *, own: bool) -> Visit:
        """Return the visit of this block, which is reported when the block is gone. The report must take no lock."""
        visit = cls(block, report)
        visit.holding = holding
        visit.own = own
        visit.left = False
        return visit

    def desert(self, orphaned: Callable[[Holding], object]) -> None:
        """Give the lease back, unless other blocks run on it."""
        tenure = self.holding()
        if tenure is None:
            orphaned(self.holding)
        else:
            tenure._desert(self)


LEFT = Visit.of(Visit, cast("Holding", None), lambda _: None, own=True)
"""Stands for a block that has ended."""
LEFT.left = True


class Visited:
    """Mixed into a lease."""

    _lock: threading.RLock
    _engine: Engine
    _belief: Holder
    _holding: Holding
    _advance: Callable[[HolderEvent, int], None]
    _is_at_work: Callable[[], bool]
    _now: Callable[[], int]
    _visits: tuple[Visit, ...] = ()
    """The ``with`` blocks on it that run: its own, and those that have entered it again."""
    _own_visit: Visit | None = None
    """The block of its own ``with``, once that was entered: there is only one."""
    _owner_left = False
    """Whether its own ``with`` has ended."""

    def _occupy(self, block: object) -> None:
        """Enter its own ``with``: a second one would give it back under the first."""
        # Where it is entered by hand there is no block, and what it was entered through may be dropped before the lease.
        lasting = block if isinstance(block, Exit) else self
        visit = Visit.of(lasting, self._holding, self._engine.keeper.deserted.append, own=True)
        with self._lock:
            if self._own_visit is not None:
                raise ConfigError("this lease is, or was, in a 'with' already: use again(), or acquire another")
            self._visits = (*self._visits, visit) if self._visits else (visit,)
            self._own_visit = visit
            self._holding.entered = True

    def _visit(self, block: object) -> Visit:
        """Enter it again."""
        visit = Visit.of(block, self._holding, self._engine.keeper.deserted.append, own=False)
        with self._lock:
            self._visits = (*self._visits, visit)
        return visit

    def _is_last_out(self, visit: Visit | None) -> bool:
        """Leave it; whether no other block is inside. It stays among the visits until `_is_gone`: see `_desert`."""
        with self._lock:
            if visit is None or visit.own:
                self._owner_left = True
            if visit is not None:
                visit.left = True
            return self._owner_left and (self._visits == (visit,) or all(one.left for one in self._visits))

    def _is_gone(self, visit: Visit | None) -> None:
        """Forget a block that has ended, with all that followed from it."""
        with self._lock:
            visits = self._visits
            if visits == (visit,):
                self._visits = ()
            elif visits:
                self._visits = tuple([one for one in visits if one is not visit])
            if visit is self._own_visit and visit is not None:
                self._own_visit = LEFT  # so that nothing is reported of a block that has ended as it should

    def _desert(self, visit: Visit) -> None:
        """Deal with a block that was cut off by an interrupt, before or in the course of leaving."""
        if self._is_last_out(visit) and self._belief.state is not State.LOST:
            if self._is_at_work():
                self._advance(Over(Loss.RELEASED), self._now())
            else:
                self._engine.abandon(cast("Tenure", self), Loss.RELEASED)
        self._is_gone(visit)
