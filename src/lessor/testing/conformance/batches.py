"""A batch is its operations one after the other, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.lease import encode_metadata
from lessor.core.ops import Acquire, Granted, Held, Lost, NotHeld, Release, Released, Renew, Renewed, Revoke
from lessor.errors import ConfigError
from lessor.testing.conformance.base import PATIENCE, Case, new_id, ns, taken

if TYPE_CHECKING:
    from lessor.core.ops import Op
    from lessor.stores.base import Store
    from lessor.testing.faces import Face


class Batches(Case):
    """Hundreds of operations, mixed, with duplicates."""

    def test_an_empty_one(self, store: Store) -> None:
        assert store.apply([], timeout=PATIENCE) == []

    def test_hundreds_of_mixed_operations(self, store: Store) -> None:
        first = [new_id() for _ in range(200)]
        grants = store.apply([Acquire(f"r/{i}", first[i], "h", ns(30)) for i in range(200)], timeout=PATIENCE)
        assert all(isinstance(grant, Granted) for grant in grants)
        ops: list[Op] = []
        expected: list[type] = []
        for i, (lease_id, grant) in enumerate(zip(first, grants, strict=True)):
            assert isinstance(grant, Granted)
            more: list[tuple[Op, type]] = [
                (Renew(f"r/{i}", lease_id, grant.token, ns(30)), Renewed),
                (Acquire(f"r/{i}", new_id(), "other", ns(30)), Held),
                (Release(f"r/{i}", new_id()), NotHeld),
            ]
            if i % 3 == 0:
                more += [(Release(f"r/{i}", lease_id), Released), (Acquire(f"r/{i}", new_id(), "x", ns(30)), Granted)]
            if i % 3 == 1:
                more += [
                    (Revoke(f"r/{i}", force=True), Released),
                    (Renew(f"r/{i}", lease_id, grant.token, ns(30)), Lost),
                ]
            ops += [op for op, _ in more]
            expected += [kind for _, kind in more]
        outcomes = store.apply(ops, timeout=PATIENCE)
        assert [type(outcome) for outcome in outcomes] == expected

    def test_one_resource_many_times(self, store: Store) -> None:
        ids = [new_id() for _ in range(50)]
        ops: list[Op] = []
        for lease_id in ids:
            ops += [
                Acquire("job", lease_id, "h", ns(30)),
                Acquire("job", new_id(), "h", ns(30)),
                Release("job", lease_id),
            ]
        outcomes = store.apply(ops, timeout=PATIENCE)
        assert [type(outcome) for outcome in outcomes] == [Granted, Held, Released] * 50
        tokens = [outcome.token for outcome in outcomes if isinstance(outcome, Granted)]
        assert tokens == sorted(set(tokens)), "tokens out of order"

    def test_read_answers_in_order(self, store: Store) -> None:
        taken(store, "a", 30)
        taken(store, "c", 30)
        found = store.read(["c", "b", "a", "c"], timeout=PATIENCE)
        assert [record.resource if record else None for record in found] == ["c", None, "a", "c"]

    def test_metadata_up_to_the_declared_limit(self, store: Store, face: Face) -> None:
        limit = store.guarantees.max_metadata
        overhead = len(encode_metadata({"k": ""}, limit=limit))
        fits = {"k": "x" * (limit - overhead)}
        lease = face.acquire("job", ttl=30, metadata=fits)
        record = face.get("job")
        assert record is not None
        assert record.metadata == fits
        face.release(lease)
        with pytest.raises(ConfigError):
            face.acquire("job", ttl=30, metadata={"k": fits["k"] + "x"})
        assert face.get("job") is None
