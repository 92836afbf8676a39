"""Requests are put together by hand, so they have to say what a parser of the protocol makes of them."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Release, Renew, Revoke
from lessor.stores.redis.request import REMEMBERED, Requests

ODD = "é/\U0001f512\r\n$3"
EACH: list[tuple[Any, list[str]]] = [
    (Acquire("job", "A", "h", SECOND), ["A", "job", "A", "0", "h", "1000000", "", "", ""]),
    (
        Acquire(ODD, ODD, ODD, 1, queue=True, notify=ODD, seen_token=7, metadata=ODD),
        ["A", ODD, ODD, "7", ODD, "1", "1", ODD, ODD],
    ),
    (
        Acquire("job", "A", "h", SECOND, parent=(ODD, 5), soft_ns=1000, grace_ns=2000, lock_delay_ns=1),
        ["X", "job", "A", "0", "h", "1000000", "", "", "", ODD, "5", "1", "2", "1", "0", "0", "0", ""],
    ),
    (
        Acquire("job", "A", "h", SECOND, queue=True, priority=-2, queue_limit=3, recover=True),
        ["X", "job", "A", "0", "h", "1000000", "1", "", "", "", "0", "0", "0", "0", "0", "-2", "3", "1"],
    ),
    (Renew(ODD, "A", 2**53 - 1, SECOND), ["N", ODD, "A", str(2**53 - 1), "1000000"]),
    (Release("job", "A"), ["L", "job", "A", ""]),
    (Release(ODD, ODD, abandon=True), ["L", ODD, ODD, "1"]),
    (Release("job", "A", "h"), ["H", "job", "A", "", "h", "", "100000"]),
    (Release(ODD, ODD, ODD, abandon=True, state=ODD, reserve_ns=1), ["H", ODD, ODD, "1", ODD, ODD, "1"]),
    (Revoke("job"), ["V", "job", "", ""]),
    (Revoke(ODD, force=True, token=0), ["V", ODD, "1", "0"]),
]


def parsed(request: bytes) -> Any:
    reader = hiredis.Reader(encoding="utf-8")
    reader.feed(request)
    words = reader.gets()
    assert not reader.has_data()
    return words


@pytest.mark.parametrize(("op", "words"), EACH)
def test_one_operation(op: Any, words: list[str]) -> None:
    requests = Requests("first", ODD)
    assert parsed(requests.of([op])) == ["first", ODD, "", *words]
    assert parsed(requests.of([op], "123")) == ["first", ODD, "123", *words]


def test_a_batch() -> None:
    together = [word for _, words in EACH for word in words]
    assert parsed(Requests("first").of([op for op, _ in EACH])) == ["first", "", *together]


def test_words_of_ones_own() -> None:
    assert parsed(Requests("first").words("names", ODD)) == ["first", "names", ODD]


def test_more_terms_than_are_remembered() -> None:
    requests = Requests("first")
    for number in range(2 * REMEMBERED):
        holder = f"h{number}"
        assert parsed(requests.of([Acquire("job", "A", holder, SECOND)]))[6] == holder
    assert len(requests._terms) <= REMEMBERED
