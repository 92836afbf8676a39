"""A process that holds leases for a test, which may kill or stop it.

It reads one JSON command a line and answers each with one JSON line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from lessor.client.sync import Client
from lessor.errors import LessorError

if TYPE_CHECKING:
    from typing import Self

    from lessor.client.lease import Lease


class Child:
    """The test's end: a process that does what it is told, until it is killed."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "import sys; from lessor.testing.child import serve; serve(sys.argv[1])", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.wait_for_answer()

    def tell(self, command: str, **arguments: Any) -> None:
        """Send a command, and don't wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self._process.stdin.flush()

    def wait_for_answer(self) -> Any:
        """Return the next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError(f"the child is gone: {self._process.wait()}")
        return json.loads(line)

    def ask(self, command: str, **arguments: Any) -> Any:
        """Send a command and return the answer."""
        self.tell(command, **arguments)
        return self.wait_for_answer()

    def stop(self) -> None:
        """Stop it with SIGSTOP, and wait until it stands."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._close()

    def end(self) -> None:
        """Let it end by itself, and wait for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._close()

    def _close(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
        self._close()


def serve(url: str) -> None:
    """Do what the lines on standard input say."""
    client = Client(url)
    leases: dict[str, Lease] = {}
    _say({"ready": True})
    for line in sys.stdin:
        order = json.loads(line)
        try:
            _say(_obey(client, leases, order.pop("command"), order))
        except LessorError as error:
            _say({"error": type(error).__name__, "reason": getattr(error, "reason", str(error))})


def _obey(client: Client, leases: dict[str, Lease], command: str, order: dict[str, Any]) -> dict[str, Any]:
    if command == "acquire":
        lease = client.acquire(**order)
        leases[lease.resource] = lease
        return {"token": lease.token, "at_ns": lease._engine.clock.host_ns()}
    if command == "freeze_threads":
        # From here on no thread of ours says anything about the lease: what it answers, it finds out itself.
        client._engine.keeper.close()
        client._engine.watchdog.close()
        return {}
    if command == "count":
        return _count(client, **order)
    if command == "session":
        session = client.session(order["ttl"])
        bundle = session.acquire_all(order["resources"])
        leases[session.lease.resource] = session.lease
        leases |= {name: bundle[name] for name in order["resources"]}
        return {"resource": session.lease.resource, "tokens": bundle.tokens}
    if command == "semaphore":
        lease = client.semaphore(order["name"], order["slots"]).acquire(order["ttl"])
        leases[lease.resource] = lease
        return {"resource": lease.resource, "token": lease.token, "at_ns": lease._engine.clock.host_ns()}
    if command == "acquire_all":
        bundle = client.acquire_all(order["resources"], order["ttl"])
        return {"tokens": bundle.tokens}
    lease = leases[order["resource"]]
    if command == "check":
        lease.check()
        return {"remaining": lease.remaining}
    if command == "renew":
        lease.renew()
        return {"remaining": lease.remaining}
    if command == "release":
        return {"released": lease.release()}
    raise AssertionError(command)


def _count(client: Client, resource: str, ttl: float, path: str, rounds: int) -> dict[str, Any]:
    """Add to a number in a file, as a program would that trusts the lease alone."""
    tokens = []
    for _ in range(rounds):
        with client.acquire(resource, ttl=ttl) as lease, open(path, "r+", encoding="ascii") as file:
            number = int(file.read() or "0")
            file.seek(0)
            file.write(str(number + 1))
            tokens.append(lease.token)
    return {"tokens": tokens}


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
