"""What `make fuzz` looks for it would find; and what it begins with is dealt with."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from lessor.core.paxos.messages import Seen
from lessor.node.acceptor import NodeAcceptor
from tests.fuzz import harness
from tests.fuzz.harness import BUILT, DEAF, Finding, one
from tests.fuzz.seeds import seeds

if TYPE_CHECKING:
    from lessor.core.paxos.messages import Look, Verdict


@pytest.mark.parametrize("seed", seeds())
def test_what_it_begins_with(seed: bytes) -> None:
    one(seed)


def test_chance() -> None:
    chance = Random(7)
    for _ in range(100):
        one(bytes([BUILT | chance.choice((0, DEAF))]) + chance.randbytes(300))


class Raises(NodeAcceptor):
    def look(self, item: Look, now: int) -> Verdict:
        raise KeyError(item.resource)


class IsSlow(NodeAcceptor):
    def look(self, item: Look, now: int) -> Verdict:
        begun = time.process_time()
        while time.process_time() - begun < 0.1:
            pass
        return super().look(item, now)


class ShowsTooMuch(NodeAcceptor):
    def look(self, item: Look, now: int) -> Verdict:
        return Seen((), more="x" * 30_000_000)  # type: ignore[arg-type]


class Forgets(NodeAcceptor):
    def accept(self, item: object, now: int) -> Verdict:
        return Seen(())


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        (Raises, "internal error"),
        (IsSlow, r"0\.1 s for"),
        (ShowsTooMuch, "bytes wait for a client"),
        (Forgets, "another client got"),
    ],
)
def test_a_fault_is_found(monkeypatch: pytest.MonkeyPatch, fault: type[NodeAcceptor], what: str) -> None:
    monkeypatch.setattr(harness, "SECONDS_A_FRAME", 0.05 if fault is IsSlow else 60)

    def all_of_them() -> None:
        for seed in seeds():
            one(seed, fault)

    with pytest.raises(Finding, match=what):
        all_of_them()
