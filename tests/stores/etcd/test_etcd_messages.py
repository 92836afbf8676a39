"""The wire format, and what is made of the answers, without a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lessor.stores.etcd.leases import EtcdLease, kept_alive
from lessor.stores.etcd.messages import KEY_VALUE, LEASE, WATCH, decode, inside, number

numbers = st.integers(-(2**63), 2**63 - 1)


@given(numbers, numbers)
def test_numbers_come_back(lease_id: int, ttl: int) -> None:
    answer = decode(LEASE, number(2, lease_id) + number(3, ttl))
    assert (answer.get("id", 0), answer.get("ttl", 0)) == (lease_id, ttl)


@given(st.binary(max_size=1000), st.binary(max_size=300))
def test_bytes_come_back_and_unknown_fields_are_skipped(key: bytes, other: bytes) -> None:
    assert decode(KEY_VALUE, inside(99, other) + inside(1, key) + number(98, 7)) == {"key": key}


def test_what_may_repeat_is_a_list() -> None:
    event = inside(11, inside(2, inside(1, b"k") + number(3, 5)))
    assert decode(WATCH, event + event + number(3, 1)) == {
        "events": [{"kv": {"key": b"k", "mod_revision": 5}}] * 2,
        "created": True,
    }


def test_a_kind_of_field_that_etcd_does_not_use() -> None:
    with pytest.raises(ValueError, match="kind 5"):
        decode(LEASE, bytes([1 << 3 | 5, 0, 0, 0, 0]))


def answer(lease_id: int, ttl: int, term: int) -> bytes:
    return inside(1, number(3, 100) + number(4, term)) + number(2, lease_id) + number(3, ttl)


def test_a_sign_of_life_counts_in_the_same_term_only() -> None:
    """A leader of a term that is over may say what it likes."""
    answers = [answer(1, 10, term=7), answer(2, 10, term=6), answer(3, 0, term=7)]
    assert kept_alive(answers, 7) == {1: 10}
    assert kept_alive(answers, 8) == {}


def test_an_etcd_lease_lasts_a_little_less_than_it_says() -> None:
    """The server's clock may be the faster one."""
    lease = EtcdLease(1, 10, 10, since_ns=0)
    assert lease.left_ns(0) == 10_000_000_000
    assert lease.left_ns(5_000_000_000) == 4_500_000_000
