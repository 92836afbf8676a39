"""Other processes: they exclude each other, and when they die or stand still, the others go on."""

from __future__ import annotations

import os
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from lessor.client.sync import Client
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import Capability
from lessor.testing.child import Child
from lessor.testing.conformance.base import ODDLY_LATE, PATIENCE, Case, Thread, pass_time, require, until

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
                child.tell("count", resource="number", ttl=10, path=str(path), rounds=60)
            answers = [child.wait_for_answer() for child in children]
            assert all("tokens" in answer for answer in answers), answers
            for child in children:
                child.end()
        tokens = [answer["tokens"] for answer in answers]
        assert int(path.read_text()) == 180
        assert all(mine == sorted(mine) for mine in tokens), "tokens out of order"
        assert len({token for mine in tokens for token in mine}) == 180

    def test_a_killed_holder_in_processes(self, lab: Harness, face: Face) -> None:
        with Child(lab.url()) as child:
            token = child.ask("acquire", resource="job", ttl=lab.ttl)["token"]
            waiting = Thread(lambda: (face.acquire("job", ttl=lab.ttl, wait=PATIENCE), SYSTEM.now()))
            until(lambda: bool((record := face.get("job")) and record.queue), "the waiter")
            child.kill()
            killed = SYSTEM.now()
            lease, got = waiting.result()
        assert lease.token > token
        assert (got - killed) / 1e9 < lab.ttl + lab.lag + ODDLY_LATE

    def test_a_killed_waiter_in_processes(self, lab: Harness, face: Face) -> None:
        lease = face.acquire("job", ttl=30)
        with Child(lab.url()) as dead, Child(lab.url()) as alive:
            for number, child in enumerate((dead, alive), 1):
                child.tell("acquire", resource="job", ttl=30)
                until(lambda n=number: len(face.get("job").queue) == n, "the waiter")  # type: ignore[misc, union-attr]
            dead.kill()
            released = SYSTEM.host_ns()
            face.release(lease)
            answer = alive.wait_for_answer()
            assert (answer["at_ns"] - released) / 1e9 < 2.5

    def test_a_stopped_holder_in_processes(self, lab: Harness, face: Face) -> None:
        """Stopped beyond its TTL and woken up, it finds its lease lost at its first look."""
        with Child(lab.url()) as child:
            token = child.ask("acquire", resource="job", ttl=lab.ttl)["token"]
            child.ask("freeze_threads")
            child.stop()
            newer = face.acquire("job", ttl=lab.ttl, wait=PATIENCE)
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
        for _ in range(3):
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
            lease = client.acquire("job", ttl=lab.ttl)
            reader, writer = os.pipe()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # a process with threads that forks: just that
                pid = os.fork()
            if pid == 0:
                os.close(reader)
                try:
                    found = [str(lease.state), str(lease.loss), str(lease.release())]
                    with client.acquire("childs", ttl=lab.ttl, wait=0) as own:
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
            pass_time(1.5 * lab.ttl)
            lease.check()
