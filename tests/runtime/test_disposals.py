"""What is given back is kept until the store answers: spaced, and not without bound."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import pytest

from lessor.client.sync import Client
from lessor.core.ops import Release
from lessor.runtime import keeper
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from lessor.testing.conformance.base import PATIENCE, new_id, ns, until
from lessor.testing.faults import FaultyStore

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def silent() -> Iterator[FaultyStore]:
    store = FaultyStore(open_store("memory://", SYSTEM))
    store.lost_requests = 10**6
    yield store
    store.close()


def test_only_so_many_releases_are_kept_for_a_silent_store(
    silent: FaultyStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeper, "MOST_DISPOSALS", 3)
    ids = [new_id() for _ in range(5)]
    with contextlib.closing(Client(silent)) as client, caplog.at_level(logging.WARNING, "lessor"):
        for lease_id in ids:
            client._engine.keeper.dispose(Release("job", lease_id, abandon=True), ns(30))
        assert caplog.text.count("more than 3 requests had no answer") == 1
        mark = len(silent.calls)
        silent.lost_requests = 0
        assert client._engine.keeper.drain(PATIENCE) == 0
        sent = {op.lease_id for ops in silent.calls[mark:] for op in ops if isinstance(op, Release)}
    assert sent <= set(ids[2:])


def test_a_silent_store_is_asked_less_and_less_often(silent: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[int] = []
    with contextlib.closing(Client(silent)) as client:
        disposer = client._engine.keeper._disposer
        due = disposer.set

        def soon(disposal: keeper.Disposal, due_ns: int) -> None:
            pauses.append(due_ns - SYSTEM.now())
            due(disposal, SYSTEM.now())

        monkeypatch.setattr(disposer, "set", soon)
        client._engine.keeper.dispose(Release("job", new_id(), abandon=True), 0)
        until(lambda: len(pauses) > 10, "ten retries")
        silent.lost_requests = 0
        assert client._engine.keeper.drain(PATIENCE) == 0
    assert max(pauses[1:4]) < ns(1)
    assert ns(1) < max(pauses) <= keeper.LATE_DISPOSAL_NS


def test_a_client_that_is_closed_says_what_has_no_answer(silent: FaultyStore, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(silent)
    client._engine.keeper.dispose(Release("job", new_id(), abandon=True), ns(30))
    with caplog.at_level(logging.INFO, "lessor"):
        client.close()
    assert "had not answered 1 requests" in caplog.text
