"""A work that contestants do in turns: in each round everybody once, in random order."""

from __future__ import annotations

import contextlib
import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from bench.results import Absent, Entry, Found
from bench.worker import Failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.contestant import Contestant
    from bench.places import Place
    from bench.results import Measure
    from bench.show import Show

Field = TypeVar("Field")
Figures = dict[str, list[float]]
"""Samples by the name of their series."""


class Work(ABC, Generic[Field]):
    """What is measured on one store."""

    name: str
    title: str
    stores: tuple[str, ...] = ("redis", "postgresql", "sqlite", "etcd", "zookeeper", "cluster")
    """Where it is done."""
    measures: ClassVar[tuple[Measure, ...]]
    ttl: ClassVar[float] = 30.0
    fresh: bool = False
    """Whether a field is set up for each round, and not kept while others have their turns."""

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick

    @property
    @abstractmethod
    def rounds(self) -> int:
        """How many rounds there are."""

    @abstractmethod
    def field(self, place: Place, contestant: type[Contestant]) -> contextlib.AbstractContextManager[Field]:
        """Set up what the contestant keeps over the rounds: the processes that it runs in."""

    @abstractmethod
    def round(self, field: Field) -> Figures:
        """Measure once."""

    def run(self, store: str, place: Place, contestants: Sequence[type[Contestant]], show: Show) -> Found:
        """Let all of them take turns, and leave out, with the reason, who fails."""
        wanted = [kind for kind in contestants if kind.store == store]
        absent = [Absent(kind.name, why) for kind in wanted if (why := kind.why_not(self.name)) is not None]
        kinds = {kind.name: kind for kind in wanted if kind.takes_part(self.name)}
        entries = {name: Entry(name, kind.kind, kind.face, kind.remark) for name, kind in kinds.items()}
        with contextlib.ExitStack() as stack:
            kept = {
                name: stack.enter_context(self.field(place, kind)) for name, kind in kinds.items() if not self.fresh
            }
            for number in range(self.rounds):
                for name in random.sample(sorted(entries), len(entries)):
                    show.step(number + 1, self.rounds, name)
                    fresh = self.field(place, kinds[name]) if self.fresh else contextlib.nullcontext(kept[name])
                    try:
                        with fresh as field:
                            entries[name].add(self.round(field))
                    except Failed as failure:
                        absent.append(Absent(name, str(failure)))
                        del entries[name]
        place.clear()
        return Found(f"{store}.{self.name}", self.title, list(self.measures), list(entries.values()), absent)
