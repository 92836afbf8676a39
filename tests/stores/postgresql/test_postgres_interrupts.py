"""Ctrl-C at whatever line costs no connection, and nothing that was said without a word about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.stores import listening, pool
from lessor.stores.postgresql import connection, subscription, wire
from lessor.testing.conformance.base import PATIENCE
from tests.stores.hearing import hides_no_event
from tests.stores.interrupting import interrupted_everywhere

if TYPE_CHECKING:
    from types import ModuleType

    from lessor.stores.postgresql import PostgresStore


@pytest.mark.parametrize("module", [connection, pool, wire])
def test_an_interrupt_at_whatever_line_costs_no_connection(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    monkeypatch.setattr(pool, "CONNECTIONS", 1)
    for where in interrupted_everywhere(module, lambda: store.read(["job"], timeout=PATIENCE)):
        assert store.read(["job"], timeout=PATIENCE) == [None], where


@pytest.mark.parametrize("module", [listening, subscription, wire])
def test_an_interrupt_at_whatever_line_hides_no_event(store: PostgresStore, module: ModuleType) -> None:
    subscribed = store.subscribe("job/")
    assert subscribed is not None
    hides_no_event(store, subscribed, "job/", module)
    subscribed.close()
