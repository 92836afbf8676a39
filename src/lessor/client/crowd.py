"""Many leases at once: in batches, as large as the store takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from lessor.core.holder import Over
from lessor.core.ops import Loss, Release, Unknown
from lessor.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lessor.client.options import Terms
    from lessor.client.place import BasePlace
    from lessor.core.ops import Outcome
    from lessor.runtime.engine import Engine
    from lessor.runtime.tenure import Tenure

T = TypeVar("T")


def batches(engine: Engine, things: Sequence[T]) -> Iterator[Sequence[T]]:
    """Return them in parts that the store takes."""
    most = engine.store.guarantees.max_batch
    return (things[start : start + most] for start in range(0, len(things), most))


# --- giving back --------------------------------------------------------------------------------------------------


def let_go(engine: Engine, tenures: Iterable[Tenure]) -> list[tuple[Tenure, Release]]:
    """Stop believing in them, and return what to send: a late renewal must not follow the release."""
    now = engine.clock.now()
    given = []
    for tenure in tenures:
        tenure._advance(Over(Loss.RELEASED), now)
        if tenure._to_give_back():
            given.append((tenure, tenure._release))
    return given


def settle(given: Sequence[tuple[Tenure, Release]], outcomes: Sequence[Outcome]) -> None:
    """Note which of them the store has ended."""
    for (tenure, _), outcome in zip(given, outcomes, strict=True):
        tenure._released = not isinstance(outcome, Unknown)


def dispose(engine: Engine, given: Sequence[tuple[Tenure, Release]]) -> None:
    """Give back in the background what got no answer."""
    for tenure, release in given:
        if not tenure._released:
            engine.keeper.dispose(release, tenure.timing.ttl_ns)


# --- waiting for any ----------------------------------------------------------------------------------------------


def check_places(places: Sequence[BasePlace[Any]]) -> None:
    """Refuse to wait for nothing."""
    if not places:
        raise ConfigError("there is no place to wait at")
    for place in places:
        if place.lease is None:
            place._require_open()


def tell_where(engine: Engine, places: Sequence[BasePlace[Any]]) -> None:
    """Have them called at this client's address, also those that were made before it had one."""
    for place in places:
        if not place._claim.op.notify:
            place._claim.op = place._claim.op._replace(notify=engine.waiters.address)


def all_terms(places: Iterable[BasePlace[Any]]) -> list[Terms]:
    """Return the terms of the places, those that share them once."""
    return list({id(place._terms): place._terms for place in places}.values())


def granted(places: Sequence[BasePlace[T]]) -> T | None:
    """Return the first lease that has been granted, or None."""
    return next((place.lease for place in places if place.lease is not None), None)
