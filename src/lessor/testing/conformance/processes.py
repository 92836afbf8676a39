"""Other processes: they exclude each other, and when they die or stand still, the others go on."""

from __future__ import annotations

import os
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from lessor.client.sync import Client
from lessor.stores.base import Capability
from lessor.testing.child import Child
from lessor.testing.conformance.base import PATIENCE, Case, Thread, require, until

if TYPE_CHECKING:
    from lessor.stores.base import Store
    from lessor.testing.faces import Face
    from lessor.testing.harness import Harness


class Processes(Case):
    """Real processes, real signals."""

    @pytest.fixture(autouse=True)
    def _only_across_processes(self, request: pytest.FixtureRequest) -> None:
        if "in_processes" in request.node.name:
            require(request.getfixturevalue("store"), Capability.CROSS_PROCESS)

    def test_exclusion_in_processes(self, lab: Harness, store: Store) -> None:
        """A number in a file that only the lease protects."""
        path = lab.folder / "number"
        path.write_text("0")
        with ExitStack() as stack:
            children = [stack.enter_context(Child(lab.url())) for _ in range(3)]
            for child in children:
                child.tell("count", resource="number", ttl=30, path=str(path), rounds=30)
            answers = [child.wait_for_answer() for child in children]
            assert all("tokens" in answer for answer in answers), answers
            for child in children:
                child.end()
        tokens = [answer["tokens"] for answer in answers]
        assert int(path.read_text()) == 90
        assert all(mine == sorted(mine) for mine in tokens), "tokens out of order"
        assert len({token for mine in tokens for token in mine}) == 90

    def test_a_killed_holder_in_processes(self, lab: Harness, face: Face, store: Store) -> None:
        with Child(lab.url()) as child:
            token = child.ask("acquire", resource="job", ttl=lab.ttl)["token"]
            waiting = Thread(lambda: face.acquire("job", ttl=lab.ttl, wait=PATIENCE))
            until(lambda: not waiting.is_alive() or bool(store.waiters("job", timeout=PATIENCE)), "the waiter")
            child.kill()
            lease = waiting.result()
        assert lease.token > token

    def test_a_killed_waiter_in_processes(self, lab: Harness, face: Face) -> None:
        lease = face.acquire("job", ttl=30)
        with Child(lab.url()) as dead, Child(lab.url()) as alive:
            for number, child in enumerate((dead, alive), 1):
                child.tell("acquire", resource="job", ttl=30)
                until(lambda n=number: len(face.get("job").queue) == n, "the waiter")  # type: ignore[misc, union-attr]
            dead.kill()
            face.release(lease)
            assert alive.wait_for_answer()["token"] > lease.token

    def test_a_stopped_holder_in_processes(self, lab: Harness, face: Face) -> None:
        """Stopped beyond its TTL and woken up, it finds its lease lost at its first look."""
        with Child(lab.url()) as child:
            token = child.ask("acquire", resource="job", ttl=lab.ttl)["token"]
            child.ask("freeze_threads")
            child.stop()
            newer = face.acquire("job", ttl=60, wait=PATIENCE)
            assert newer.token > token
            child.resume()
            assert child.ask("check", resource="job") == {"error": "LeaseLost", "reason": "expired"}
            newer.check()
            assert child.ask("release", resource="job") == {"released": False}
            newer.check()
            assert face.get("job") is not None

    def test_a_holder_that_ends_in_processes(self, lab: Harness, face: Face) -> None:
        """What a process still holds when its interpreter ends is free at once."""
        with Child(lab.url()) as child:
            child.ask("acquire", resource="job", ttl=60)
            child.end()
        assert face.try_acquire("job", ttl=lab.ttl) is not None

    def test_tokens_go_on_in_processes(self, lab: Harness, face: Face) -> None:
        tokens = []
        for _ in range(2):
            with Child(lab.url()) as child:
                tokens.append(child.ask("acquire", resource="job", ttl=lab.ttl)["token"])
                child.kill()
            lease = face.acquire("job", ttl=lab.ttl, wait=PATIENCE)
            tokens.append(lease.token)
            face.release(lease)
        assert tokens == sorted(set(tokens)), "tokens out of order"

    def test_a_forked_child_owns_nothing(self, lab: Harness) -> None:
        """It reads its leases as lost, and can't harm those of its parent; it may take others of its own."""
        with Client(lab.url()) as client:
            lease = client.acquire("job", ttl=lab.steady)
            reader, writer = os.pipe()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # a process with threads that forks: just that
                pid = os.fork()
            if pid == 0:
                os.close(reader)
                try:
                    found = [str(lease.state), str(lease.loss), str(lease.release())]
                    with client.acquire("childs", ttl=60, wait=0) as own:
                        found.append(str(own.state))
                    os.write(writer, " ".join(found).encode())
                except BaseException as error:  # noqa: BLE001 - it must reach the parent
                    os.write(writer, repr(error).encode())
                finally:
                    os._exit(0)
            os.close(writer)
            with os.fdopen(reader, "rb") as answer:
                assert answer.read().decode() == "lost forked False held"
            os.waitpid(pid, 0)
            until(lambda: (record := client.get("job")) is not None and record.renewals > 0, "a renewal")
            lease.check()
