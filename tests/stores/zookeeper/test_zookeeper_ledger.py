"""A lease is not ended for lack of a renewal that is under way."""

from __future__ import annotations

from typing import Any

from lessor.core.ops import Loss
from lessor.stores.zookeeper.ledger import Holding, Ledger


def holding(expiry_ns: int) -> Holding:
    session: Any = None
    return Holding("job", "id", "mark", 7, session, 1, expiry_ns, 0, {})


def test_one_that_is_over_is_given_up_and_not_renewed_any_more() -> None:
    ledger, lease = Ledger(), holding(100)
    assert not ledger.give_up(lease, 99)
    assert ledger.give_up(lease, 100)
    assert ledger.pledge([lease], 50) == [False]


def test_one_whose_renewal_was_sent_in_time_is_not_given_up_before_the_answer() -> None:
    ledger, lease = Ledger(), holding(100)
    assert ledger.pledge([lease], 99) == [True]
    assert not ledger.give_up(lease, 150)
    ledger.redeem([lease])
    assert ledger.give_up(lease, 150)


def test_one_that_was_renewed_meanwhile_is_not_given_up() -> None:
    ledger, lease = Ledger(), holding(100)
    ledger.pledge([lease], 99)
    lease.expiry_ns = 200
    ledger.redeem([lease])
    assert not ledger.give_up(lease, 150)


def test_one_that_is_over_is_not_renewed() -> None:
    ledger, lease = Ledger(), holding(100)
    assert ledger.pledge([lease], 100) == [False]
    ended = holding(100)
    ledger.end(ended, Loss.REVOKED)
    assert ledger.pledge([ended], 50) == [False]
