"""A pytest plugin: a test that can't finish fails with the stack of every thread, and the run ends.

Each process that runs tests is watched by faulthandler's own thread, which needs no GIL: a test that is blocked in C is
ended, too. The limit covers set-up, call and teardown. A process that reaches it writes its stacks and exits without
clean-up. Under xdist the controller then reports the test as failed, with the stacks, and ends the run; so it does
when a worker dies in any other way. It learns of a death from the process itself, since a child of the worker may keep
the worker's pipes open.

``@pytest.mark.timeout(seconds)`` sets another limit for a test, ``--time-limit`` for a run. What this plugin can't end (a
controller that hangs, processes that tests left behind) is up to `tests.supervisor`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

LIMIT = 300.0
"""Seconds that a test may take, unless it says otherwise."""
NOTICED = 2.0
"""Seconds that xdist has to notice the end of a worker by itself."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--time-limit", type=float, default=LIMIT, help=f"seconds that a test may take (default: {LIMIT:g})"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Watch this process, and the workers if it has any."""
    config.addinivalue_line("markers", "timeout(seconds): how long the test may take, with set-up and teardown")
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        stacks = Path(worker["stacks"]).open("w", encoding="utf-8")  # noqa: SIM115 - until the process ends
        config.pluginmanager.register(TimeLimit(config.option.time_limit, stacks), "timelimit")
    elif getattr(config.option, "numprocesses", None) or getattr(config.option, "tx", None):
        config.option.maxworkerrestart = "0"
        controller = Controller(config)
        config.pluginmanager.register(controller, "timelimit-controller")
        config.add_cleanup(controller.close)
    else:
        # A copy: pytest captures the descriptor itself.
        stderr = os.fdopen(os.dup(2), "w", encoding="utf-8")
        config.pluginmanager.register(TimeLimit(config.option.time_limit, stderr), "timelimit")


class TimeLimit:
    """Ends this process when a test, or the end of the session, takes too long."""

    def __init__(self, seconds: float, stacks: TextIO) -> None:
        self._seconds = seconds
        self._stacks = stacks

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Watch one test, from its set-up to its teardown."""
        marker = item.get_closest_marker("timeout")
        faulthandler.dump_traceback_later(marker.args[0] if marker else self._seconds, exit=True, file=self._stacks)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Watch the end of the process."""
        faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._stacks)


class Controller:
    """Ends the run when a worker has died, and says where it was."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._folder = Path(tempfile.mkdtemp(prefix="lessor-stacks-"))
        self._nodes: list[Any] = []
        self._crashed: pytest.TestReport | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="worker-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        shutil.rmtree(self._folder, ignore_errors=True)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a new worker where to write its stacks."""
        node.workerinput["stacks"] = str(self._folder / node.gateway.id)
        self._nodes.append(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """End the run after a worker that died outside of any test."""
        if error:
            session: Any = self._config.pluginmanager.getplugin("dsession")
            session.shouldstop = f"worker {node.gateway.id} died\n{self._stacks_of(node)}"

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: Any) -> None:
        """Add the stacks to the report on the test in which a worker died."""
        report.longrepr = f"{report.longrepr}\n{self._stacks_of(report.node)}"
        self._crashed = report

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """End the run once that report is told: the other workers would go on with all that they were sent."""
        if report is self._crashed:
            session: Any = self._config.pluginmanager.getplugin("dsession")
            session.nodemanager.EXIT_TIMEOUT = NOTICED
            pytest.exit(f"a worker died in {report.nodeid}", returncode=1)

    def _stacks_of(self, node: Any) -> str:
        with contextlib.suppress(OSError):
            stacks: Path = self._folder / node.gateway.id
            if written := stacks.read_text(encoding="utf-8", errors="replace"):
                return written
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.gateway._io.popen.wait(NOTICED)
        return f"it left no stacks, and the status {_status(node)}"

    def _look(self) -> None:
        """Tell xdist of a worker that has ended while another process keeps its pipes open."""
        from xdist.workermanage import Marker

        dead: set[Any] = set()
        while not self._closed.wait(NOTICED):
            for node in list(self._nodes):
                if node in dead and not node._down:
                    node.process_from_remote(Marker.END)
                elif _status(node) is not None:
                    dead.add(node)


def _status(node: Any) -> int | None:
    status: int | None = node.gateway._io.popen.poll()
    return status
