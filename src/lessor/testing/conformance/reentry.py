"""Who has the lease may enter it again; who only knows the name of the resource may not."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lessor.errors import ConfigError, LeaseLost
from lessor.testing.conformance.base import PATIENCE, Case, Thread, until

if TYPE_CHECKING:
    from lessor.testing.faces import Face
    from lessor.testing.harness import Harness


class Reentry(Case):
    """The last one out gives it back."""

    def test_the_outermost_exit_gives_it_back(self, face: Face, other: Face) -> None:
        lease: Any = face.acquire("job", ttl=30)

        def inner(again: Any) -> None:
            assert again is lease
            face.inside(lease.again(), lambda _: None)
            lease.check()

        def outer(_: Any) -> None:
            face.inside(lease.again(), inner)
            lease.check()
            assert other.try_acquire("job", ttl=30) is None

        face.inside(lease, outer)
        assert lease.loss == "released"
        assert other.try_acquire("job", ttl=30) is not None

    def test_a_second_with_is_refused_and_frees_nothing(self, face: Face, other: Face) -> None:
        """It would give the lease back at its end, under whoever is still in the first."""
        lease: Any = face.acquire("job", ttl=30)

        def body(_: Any) -> None:
            with pytest.raises(ConfigError, match=r"again\(\)"):
                face.inside(lease, lambda _: None)
            with pytest.raises(ConfigError, match=r"again\(\)"):
                Thread(lambda: face.inside(lease, lambda _: None)).result()
            lease.check()
            assert other.try_acquire("job", ttl=30) is None

        face.inside(lease, body)
        assert other.try_acquire("job", ttl=30) is not None

    def test_a_second_with_after_the_first_is_refused_while_somebody_is_inside(self, face: Face, other: Face) -> None:
        lease: Any = face.acquire("job", ttl=30)

        def body(_: Any) -> None:
            face.inside(lease, lambda _: None)
            with pytest.raises(ConfigError, match=r"again\(\)"):
                face.inside(lease, lambda _: None)
            lease.check()
            assert other.try_acquire("job", ttl=30) is None

        face.inside(lease.again(), body)
        assert other.try_acquire("job", ttl=30) is not None

    def test_what_was_given_back_is_not_entered(self, face: Face) -> None:
        lease: Any = face.acquire("job", ttl=30)
        face.inside(lease, lambda _: None)
        with pytest.raises(LeaseLost):
            face.inside(lease, lambda _: None)

    def test_a_lease_without_a_body_of_its_own_stays_after_it_was_entered_again(self, face: Face) -> None:
        lease: Any = face.acquire("job", ttl=30)
        face.inside(lease.again(), lambda _: None)
        lease.check()
        assert face.release(lease)

    def test_the_last_one_out_is_the_one_that_gives_it_back(self, face: Face, other: Face) -> None:
        lease: Any = face.acquire("job", ttl=30)
        inside, go_on = threading.Event(), threading.Event()

        def stay(_: Any) -> None:
            inside.set()
            assert go_on.wait(PATIENCE)

        staying = Thread(lambda: face.inside(lease.again(), stay))
        assert inside.wait(PATIENCE)
        face.inside(lease, lambda _: None)
        lease.check()
        assert other.try_acquire("job", ttl=30) is None
        go_on.set()
        staying.result()
        assert lease.loss == "released"
        assert other.try_acquire("job", ttl=30) is not None

    def test_a_release_ends_it_for_all(self, face: Face, other: Face) -> None:
        lease: Any = face.acquire("job", ttl=30)

        def body(_: Any) -> None:
            face.release(lease)
            assert not lease.held

        face.inside(lease.again(), body)
        assert other.try_acquire("job", ttl=30) is not None

    def test_a_loss_comes_out_of_each_body(self, face: Face, other: Face, lab: Harness) -> None:
        lease: Any = face.acquire("job", ttl=lab.steady)

        def wait(_: Any) -> None:
            until(lambda: not lease.held, "the loss")

        entries = (lease, lease.again(), lease.again())
        bodies = [Thread(partial(face.inside, entered, wait)) for entered in entries]
        other.revoke("job", force=True)
        for body in bodies:
            with pytest.raises(LeaseLost):
                body.result()

    def test_what_is_lost_is_not_entered_again(self, face: Face) -> None:
        lease: Any = face.acquire("job", ttl=30)
        face.release(lease)
        with pytest.raises(LeaseLost):
            face.inside(lease.again(), lambda _: None)
