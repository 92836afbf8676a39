"""A node's process, from its settings to its exit code.

At the start nothing is answered before what must be on the disk is there, and what must not be is gone; and the disk
stays as it is until the node can listen. At the end nothing is answered after the state was taken that the next start
will go on with.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
from typing import TYPE_CHECKING

from lessor.core.paxos.ballots import DAY_US
from lessor.core.paxos.starting import NOTHING_PROMISED, shut_down, silence, start
from lessor.errors import ConfigError
from lessor.node import log as logging
from lessor.node.acceptor import NodeAcceptor
from lessor.node.connection import GREETING_SECONDS, Connection
from lessor.node.disk import DataFolder, DiskError
from lessor.node.log import log
from lessor.node.scribe import Scribe
from lessor.node.seeding import seed
from lessor.node.service import Service
from lessor.node.web import LONGEST_HEAD, Web
from lessor.runtime.clock import SYSTEM, AcceptorClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lessor.core.paxos.acceptor import Durable
    from lessor.node.settings import Settings
    from lessor.stores.paxos.address import Place

TICK = 0.25
"""Seconds between two looks at what is to be done every now and then."""
SPARE = 100
"""Descriptors for what is no connection of a client: files, places to listen on, health checks, other nodes."""


def init(data: str, node: str) -> None:
    """Prepare the folder of a node of a new cluster, where nothing was ever promised: that can't be found out."""
    with DataFolder(data, node) as folder:
        if folder.mark.read() is not None:
            raise ConfigError(f"the data folder {data!r} is in use already: nothing to prepare")
        if not folder.mark.blank:
            raise ConfigError(
                f"the mark in {data!r} is damaged, so nobody knows what was promised: if this node belongs to a cluster, "
                "empty the folder and start it without --init; only if that is new, empty it and prepare it again"
            )
        folder.mark.write(NOTHING_PROMISED)


def run(settings: Settings) -> int:
    """Run a node until SIGTERM or SIGINT."""
    logging.choose(as_json=settings.json_log)
    settings = _affordable(settings)
    with DataFolder(settings.data, settings.id) as folder, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_Process(settings, folder).run())


def _affordable(settings: Settings) -> Settings:
    """Have as many descriptors as may be had; return the settings with as many connections as these are enough for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # more than the kernel has
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    if soft == resource.RLIM_INFINITY:
        return settings
    greeting = min(settings.max_greeting, soft // 4)
    enough_for = max(soft // 4, soft - greeting - SPARE)
    if enough_for < settings.max_connections:
        log("there are few descriptors: see ulimit -n", level="warning", descriptors=soft, connections=enough_for)
    return settings._replace(max_connections=min(settings.max_connections, enough_for), max_greeting=greeting)


@contextlib.contextmanager
def _listening_on(place: Place) -> Iterator[None]:
    """Say where it is that nobody can listen."""
    try:
        yield
    except OSError as error:
        # asyncio's own words for the common errors repeat the place; a name that isn't known has no number.
        why = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or error
        raise ConfigError(f"can't listen on {place}: {why}") from error
    except UnicodeError as error:
        raise ConfigError(f"can't listen on {place}: no host has such a name") from error


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - where it is there
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


class _Process:
    def __init__(self, settings: Settings, folder: DataFolder) -> None:
        self._settings = settings
        self._folder = folder
        self._service: Service
        """Set before anybody is listened to."""
        self._stop = asyncio.Event()
        self._exit_code = 0
        """Not 0: it can't go on, nor leave a state that the next start could go on with."""

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._stop.set)
        async with contextlib.AsyncExitStack() as stack:
            servers = await self._bind(stack)
            service = self._service = self._begin()

            def done(durable: Durable) -> None:
                loop.call_soon_threadsafe(service.persisted, durable)

            def failed(error: DiskError) -> None:
                loop.call_soon_threadsafe(self._break, error)

            service.scribe = Scribe(self._folder.mark, done, failed)
            loop.add_signal_handler(signal.SIGUSR1, service.collect)
            try:
                for place, server in servers:
                    with _listening_on(place):
                        await server.start_serving()
            except ConfigError:
                self._end(service)
                raise
            tasks = [loop.create_task(self._tick(service))]
            if not service.acceptor.seeded:
                tasks.append(loop.create_task(seed(service)))
            for task in tasks:
                task.add_done_callback(self._look_after)
            self._announce(service)
            await self._stop.wait()
            for task in tasks:
                task.cancel()
        return self._end(service)

    def _announce(self, service: Service) -> None:
        """Say that it is there, and what is doubtful about it."""
        settings = self._settings
        log(
            "listening", node=settings.id, listen=str(settings.listen), state=service.state, acceptors=settings.acceptors,
            silence_s=round(service.silence_left(service.clock.now()) / 1e9, 3), pid=os.getpid(),
        )  # fmt: skip
        if not (settings.secret or settings.tls or settings.listen.host in {"127.0.0.1", "::1", "localhost"}):
            log("anybody who reaches this node may take and end leases: there is no secret", level="warning")
        ahead = (service.acceptor.floor - SYSTEM.wall_us()) / DAY_US
        if ahead > 1:
            why = f"its floor is {ahead:.1f} days ahead, by a clock that was wrong: the others do without this node"
            log(why, level="error", node=settings.id)

    async def _bind(self, stack: contextlib.AsyncExitStack) -> list[tuple[Place, asyncio.Server]]:
        """Take the places to listen on, and don't listen yet: who can't have them must leave the disk as it is."""
        settings = self._settings
        with _listening_on(settings.listen):
            server = await asyncio.get_running_loop().create_server(
                lambda: Connection(self._service), settings.listen.host, settings.listen.port, start_serving=False,
                ssl=settings.tls, ssl_handshake_timeout=GREETING_SECONDS if settings.tls else None, backlog=1024,
            )  # fmt: skip
            stack.callback(server.close)
        if settings.http is None:
            return [(settings.listen, server)]
        with _listening_on(settings.http):
            web = await asyncio.start_server(
                lambda reader, writer: Web(self._service).serve(reader, writer),
                settings.http.host, settings.http.port, limit=LONGEST_HEAD, start_serving=False,
            )  # fmt: skip
            stack.callback(web.close)
        return [(settings.listen, server), (settings.http, web)]

    def _begin(self) -> Service:
        """Make the acceptor from what is on the disk, and leave on the disk what a crash may find."""
        clock = AcceptorClock()
        durable = self._folder.mark.read()
        incarnation = int.from_bytes(os.urandom(6))
        snapshot = self._folder.read_snapshot()
        begun = start(
            self._settings.config, incarnation, clock.now(), durable=durable, snapshot=snapshot, make=NodeAcceptor
        )
        acceptor = begun.acceptor
        assert isinstance(acceptor, NodeAcceptor)
        acceptor.most = self._settings.max_leases
        ahead = acceptor.top_up(SYSTEM.wall_us()) if acceptor.seeded else None
        if ahead is not None:
            self._folder.mark.write(ahead)
            acceptor.persisted(ahead)
        self._folder.delete_snapshot()  # the last thing that may fail
        return Service(self._settings, acceptor, clock, SYSTEM)

    async def _tick(self, service: Service) -> None:
        while True:
            await asyncio.sleep(TICK)
            service.tick()

    def _break(self, error: DiskError) -> None:
        """Stop: what can't be written can't be promised."""
        if not self._exit_code:
            self._give_up("the disk failed", str(error), error.exit_code)

    def _look_after(self, task: asyncio.Task[None]) -> None:
        """Stop where one has failed that goes on for as long as the node does: without it, the node would only seem to."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._give_up("internal error", repr(error), 1)

    def _give_up(self, why: str, error: str, exit_code: int) -> None:
        self._exit_code = exit_code
        log(why, level="critical", error=error)
        self._stop.set()

    def _end(self, service: Service) -> int:
        """Say no more, and then leave what the next start goes on with."""
        service.closed = True
        for connection in [*service.connections, *service.greeting]:
            connection.close()
        service.scribe.close()
        if service.scribe.error is not None:
            self._break(service.scribe.error)
        acceptor, config = service.acceptor, self._settings.config
        snapshot = None if self._exit_code else shut_down(acceptor, service.clock.now())
        if snapshot is not None:
            try:
                self._folder.write_snapshot(snapshot)
            except DiskError as error:
                self._break(error)
        clean = snapshot is not None and not self._exit_code
        log("stopped", node=self._settings.id, clean=clean, leases=len(acceptor.slots))
        if not clean and acceptor.seeded:
            silent_s = silence(acceptor.durable.span_ns, config.drift) / 1e9
            why = "the state was not saved: the next start is silent at first, as after a crash; leases stay exclusive"
            log(why, level="warning", node=self._settings.id, silence_s=round(silent_s, 3))
        return self._exit_code
