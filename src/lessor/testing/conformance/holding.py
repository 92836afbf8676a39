"""What a holder is told, and what comes out of the ``with``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor.core.holder import State
from lessor.errors import LeaseLost
from lessor.testing.conformance.base import PATIENCE, Case, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.runtime.tenure import Tenure
    from lessor.testing.faces import Face
    from lessor.testing.harness import Harness


class BodyError(Exception):
    """What a body raises itself."""


class Holding(Case):
    """Loss is told, by every way there is, and never by accident."""

    def test_what_a_lease_says(self, face: Face, lab: Harness) -> None:
        lease = face.acquire("job", ttl=30, metadata={"why": "because", "ünï": "cödé"})
        assert lease.resource == "job"
        assert lease.state is State.HELD
        assert lease.loss is None
        assert 0 < lease.remaining < 30
        assert lease.metadata == {"why": "because", "ünï": "cödé"}
        record = face.get("job")
        assert record is not None
        assert (record.holder, record.token) == (lease.holder, lease.token)
        assert record.metadata == lease.metadata
        assert lease.id not in repr(lease)
        assert lease.id not in repr(record)

    def test_require(self, face: Face, lab: Harness) -> None:
        lease = face.acquire("job", ttl=30)
        lease.require(3)
        with pytest.raises(LeaseLost) as short:
            lease.require(60)
        assert short.value.needed == 60
        lease.check()

    def test_leaving_the_body_releases(self, face: Face, lab: Harness) -> None:
        face.within("job", lambda lease: lease.check(), ttl=30)
        assert face.get("job") is None

    def test_an_error_of_the_body_comes_out_and_releases(self, face: Face, lab: Harness) -> None:
        def body(_lease: Tenure) -> None:
            raise BodyError

        with pytest.raises(BodyError):
            face.within("job", body, ttl=30)
        assert face.get("job") is None

    def test_an_error_of_the_body_is_not_hidden_by_a_loss(self, face: Face, other: Face, lab: Harness) -> None:
        def body(lease: Tenure) -> None:
            other.revoke("job", force=True)
            until(lambda: lease.state is State.LOST, "the loss")
            raise BodyError

        with pytest.raises((BodyError, LeaseLost)) as raised:
            face.within("job", body, ttl=30)
        # A coroutine is cancelled before its body can raise; a thread's body has the last word.
        if type(face).__name__ == "SyncFace":
            assert raised.type is BodyError

    def test_a_lost_lease_comes_out_of_the_body(self, face: Face, other: Face, lab: Harness) -> None:

        def body(lease: Tenure) -> None:
            other.revoke("job", force=True)
            until(lambda: lease.state is State.LOST, "the loss")

        with pytest.raises(LeaseLost) as lost:
            face.within("job", body, ttl=30)
        assert lost.value.reason == "revoked"

    def test_releasing_in_the_body_is_no_loss(self, face: Face, lab: Harness) -> None:
        lease = face.acquire("job", ttl=30)
        told: list[object] = []
        lease.on_lost(told.append)
        assert face.release(lease)
        assert lease.loss == "released"
        assert not face.release(lease)
        with pytest.raises(LeaseLost):
            lease.check()
        assert told == []

    def test_a_callback_that_raises_harms_nobody(self, face: Face, other: Face, lab: Harness) -> None:
        told: list[object] = []
        lease = face.acquire("job", ttl=30)
        lease.on_lost(told.append)
        lease.on_lost(told.append)
        other.revoke("job", force=True)
        assert face.wait_lost(lease, PATIENCE)
        until(lambda: told == [lease, lease], "the callbacks")
        lease.on_lost(told.append)
        until(lambda: len(told) == 3, "the callback of a lease that was lost already")

    def test_closing_the_client_releases(self, lab: Harness, other: Face, open_face: Callable[[str], Face]) -> None:
        face = open_face(lab.url())
        leases = [face.acquire(f"job/{i}", ttl=30) for i in range(5)]
        getattr(face, "run", lambda closing: closing)(face.client.close())
        assert {lease.loss for lease in leases} == {"closed"}
        assert other.list("job/") == []
