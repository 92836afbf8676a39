"""Operations as the script takes them, in Redis's protocol, ready to be sent.

The protocol is a count of words, and each word with its length before it. It is written here and not by a library
since most of a request is always the same, and kept ready. Text is put together with a character for each byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.core.clock import MICROSECOND
from lessor.core.ops import Acquire, Release, Renew, Revoke

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.ops import Op

REMEMBERED: Final = 256
"""How many different terms of acquires are kept ready."""
RENEWED: Final = 20_000
"""How many renewals are: a lease's is always the same."""
PLAIN_FROM: Final = 8
"""The place of an acquire's ``parent``."""
PLAIN: Final = Acquire("", "", "", 0)[PLAIN_FROM:]
"""What an acquire has from there on that has no parent, no grace and the like."""
ACQUIRE_WORDS: Final = 9
RELEASE_WORDS: Final = 4
RENEW_WORDS: Final = 5
REVOKE_WORDS: Final = 4
EXTRA_WORDS: Final = 9
HANDOVER_WORDS: Final = 3
YES: Final = "$1\r\n1\r\n"
NO: Final = "$0\r\n\r\n"
BYTEWISE: Final = "latin-1"


class Requests:
    """Makes the requests of one store, which all begin with the same words."""

    def __init__(self, *first: str) -> None:
        self._first = "".join(map(_word, first))
        self._count = len(first)
        self._terms: dict[tuple[str, int, bool, str, str], str] = {}
        self._renewals: dict[Renew, str] = {}
        self._acquire_alone = f"*{self._count + 1 + ACQUIRE_WORDS}\r\n{self._first}{NO}"
        self._release_alone = f"*{self._count + 1 + RELEASE_WORDS}\r\n{self._first}{NO}"

    def of(self, ops: Sequence[Op], now: str = "") -> bytes:
        """Return the request for these operations; with a time to go by, in tests."""
        if len(ops) == 1 and not now:
            op = ops[0]
            if type(op) is Acquire and op[PLAIN_FROM:] == PLAIN:
                return _bytes(self._acquire_alone + self._acquire(op, "A"))
            if type(op) is Release and not op[2]:
                return _bytes(self._release_alone + _release(op, "L"))
        words = self._count + 1
        parts = [_word(now)]
        known = self._renewals
        for op in ops:
            if type(op) is Renew and (renewal := known.get(op)) is not None:
                words += RENEW_WORDS
                parts.append(renewal)
            else:
                more, text = self._pack(op)
                words += more
                parts.append(text)
        return _bytes(f"*{words}\r\n{self._first}{''.join(parts)}")

    def _pack(self, op: Op) -> tuple[int, str]:
        """Return how many words it takes, and these."""
        if type(op) is Acquire:
            if op[PLAIN_FROM:] == PLAIN:
                return ACQUIRE_WORDS, self._acquire(op, "A")
            return ACQUIRE_WORDS + EXTRA_WORDS, self._acquire(op, "X") + _extras(op)
        if type(op) is Release:
            if op[2]:
                return RELEASE_WORDS + HANDOVER_WORDS, _release(op, "H") + _handover(op)
            return RELEASE_WORDS, _release(op, "L")
        if type(op) is Renew:
            return RENEW_WORDS, self._renew(op)
        assert isinstance(op, Revoke)
        return REVOKE_WORDS, _revoke(op)

    def words(self, *words: str) -> bytes:
        """Return a request with just these words after those that are always the same."""
        return _bytes(f"*{self._count + len(words)}\r\n{self._first}{''.join(map(_word, words))}")

    def _acquire(self, op: Acquire, letter: str) -> str:
        resource, lease_id, holder, ttl_ns, queue, notify, seen_token, metadata = op[:PLAIN_FROM]
        terms = self._terms.get((holder, ttl_ns, queue, notify, metadata)) or self._remember(op)
        seen = str(seen_token)
        if not (resource.isascii() and lease_id.isascii()):
            resource, lease_id = _bytewise(resource), _bytewise(lease_id)
        return (
            f"$1\r\n{letter}\r\n${len(resource)}\r\n{resource}\r\n${len(lease_id)}\r\n{lease_id}\r\n"
            f"${len(seen)}\r\n{seen}\r\n{terms}"
        )

    def _remember(self, op: Acquire) -> str:
        """Keep ready what many acquires of one client have in common."""
        terms = f"{_word(op.holder)}{_us(op.ttl_ns)}{YES if op.queue else NO}{_word(op.notify)}{_word(op.metadata)}"
        if len(self._terms) >= REMEMBERED:
            self._terms.clear()
        self._terms[op.holder, op.ttl_ns, op.queue, op.notify, op.metadata] = terms
        return terms

    def _renew(self, op: Renew) -> str:
        """Keep ready what is sent again and again."""
        packed = f"$1\r\nN\r\n{_word(op.resource)}{_word(op.lease_id)}{_word(str(op.token))}{_us(op.ttl_ns)}"
        if len(self._renewals) >= RENEWED:
            self._renewals.clear()
        self._renewals[op] = packed
        return packed


def _extras(op: Acquire) -> str:
    parent, token = op.parent or ("", 0)
    times = map(_us, (op.soft_ns, op.grace_ns, op.lock_delay_ns, op.hold_at_least_ns))
    queueing = f"{_word(str(op.priority))}{_word(str(op.queue_limit))}{YES if op.recover else NO}"
    return f"{_word(parent)}{_word(str(token))}{''.join(times)}{queueing}"


def _release(op: Release, letter: str) -> str:
    resource, lease_id, _, abandon = op[:4]
    if not (resource.isascii() and lease_id.isascii()):
        resource, lease_id = _bytewise(resource), _bytewise(lease_id)
    return (
        f"$1\r\n{letter}\r\n${len(resource)}\r\n{resource}\r\n${len(lease_id)}\r\n{lease_id}\r\n"
        f"{YES if abandon else NO}"
    )


def _handover(op: Release) -> str:
    assert op.successor
    return f"{_word(op.successor)}{_word(op.state)}{_us(op.reserve_ns)}"


def _revoke(op: Revoke) -> str:
    token = NO if op.token is None else _word(str(op.token))
    return f"$1\r\nV\r\n{_word(op.resource)}{YES if op.force else NO}{token}"


def _word(text: str) -> str:
    if not text.isascii():
        text = _bytewise(text)
    return f"${len(text)}\r\n{text}\r\n"


def _bytewise(text: str) -> str:
    return text.encode().decode(BYTEWISE)


def _bytes(text: str) -> bytes:
    return text.encode() if text.isascii() else text.encode(BYTEWISE)


def _us(ns: int) -> str:
    """Return microseconds: rounded up, so that nothing becomes nothing."""
    return _word(str(-(-ns // MICROSECOND)))
