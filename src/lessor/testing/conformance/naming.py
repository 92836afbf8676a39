"""Names: all that are allowed work as they are, none is mistaken for another, and the rest is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.lease import MAX_RESOURCE_BYTES
from lessor.errors import ConfigError, InvalidResource, LeaseHeld, StoreUnavailable
from lessor.testing.conformance.base import Case, until

if TYPE_CHECKING:
    from lessor.stores.base import Store
    from lessor.testing.faces import Face

ODD = [
    "a",
    "A",
    " ",
    "a b",
    "%2F",
    "a%2Fb",
    "a/b",
    "a:b{c}d[e]*?",
    "'; DROP TABLE leases; --",
    '"quoted"',
    "back\\slash",
    "ünïcödé",
    "u\u0308",
    "\u00fc",
    "日本語/リース",
    "🔑",
    "..",
    "../..",
    ".",
    "~",
    "$(x)",
    "null",
    "0",
    "1e3",
    "x" * MAX_RESOURCE_BYTES,
    "ü" * (MAX_RESOURCE_BYTES // 2),
]
BAD = ["", "/", "/a", "a/", "a\nb", "a\0", "\x7f", "\x85", "a" * (MAX_RESOURCE_BYTES + 1), "\ud800", None, 7, b"a"]


class Naming(Case):
    """A name is a name."""

    def test_odd_names_are_held_side_by_side(self, face: Face) -> None:
        leases = {name: face.acquire(name, ttl=60, wait=0) for name in ODD}
        for name in ODD:
            record = face.get(name)
            assert record is not None
            assert (record.resource, record.token) == (name, leases[name].token)
            assert face.try_acquire(name, ttl=60) is None
        assert sorted(record.resource for record in face.list()) == sorted(ODD)
        for lease in leases.values():
            assert face.release(lease)
        assert face.list() == []

    @pytest.mark.parametrize("name", BAD)
    def test_bad_names_are_refused(self, face: Face, name: str) -> None:
        for call in (face.acquire, face.try_acquire, face.get, face.revoke):
            with pytest.raises(InvalidResource):
                call(name)

    @pytest.mark.parametrize("ttl", [0, -1, 0.01, 10**6, float("nan"), float("inf"), "30", None, True])
    def test_bad_ttls_are_refused(self, face: Face, ttl: float) -> None:
        with pytest.raises(ConfigError):
            face.acquire("job", ttl=ttl)
        assert face.get("job") is None

    def test_the_declared_bounds_of_the_ttl(self, face: Face, store: Store) -> None:
        declared = store.guarantees
        face.get("job")  # the way to the store is open from here on
        until(lambda: _is_in_time(face, declared.min_ttl_ns / 1e9), "an answer in time for so short a lease")
        face.release(face.acquire("job", ttl=declared.max_ttl_ns / 1e9, wait=0))
        with pytest.raises(ConfigError):
            face.acquire("job", ttl=declared.max_ttl_ns / 1e9 + 1)

    def test_many_names_make_no_collisions(self, face: Face) -> None:
        """A store that folds names into a few buckets would refuse some of these."""
        leases = [face.try_acquire(f"shard/{i}", ttl=60) for i in range(300)]
        assert None not in leases


def _is_in_time(face: Face, ttl: float) -> bool:
    try:
        face.release(face.acquire("job", ttl=ttl, wait=0))
    except (StoreUnavailable, LeaseHeld):  # on a busy machine it may have taken longer than that lasts
        return False
    return True
