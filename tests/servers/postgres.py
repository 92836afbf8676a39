"""Real PostgreSQL servers, and PgBouncer before one."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from lessor.testing.conformance.base import until
from tests.needs import not_here
from tests.servers import free_port, unprivileged

if TYPE_CHECKING:
    from collections.abc import Iterator

serials = itertools.count()


class PostgresServer:
    """One PostgreSQL server, which a test may stop, kill and start again on the same port."""

    def __init__(self, folder: str, *settings: str) -> None:
        self._programs = _programs()
        self.folder = folder
        self.settings = settings
        self.port = free_port()
        self.user = unprivileged()
        self._process: subprocess.Popen[bytes] | None = None
        self._own(folder)
        self._run("initdb", "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", f"{folder}/data")
        self.start()

    @property
    def address(self) -> str:
        """The server's URL without a database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.address}/postgres"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        settings = [word for setting in self.settings for word in ("-c", setting)]
        command = [
            f"{self._programs}/postgres", "-D", f"{self.folder}/data", "-p", str(self.port), "-h", "127.0.0.1",
            "-k", self.folder, "-c", "max_connections=400", *settings,
        ]  # fmt: skip
        with open(f"{self.folder}/postgres.log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, user=self.user, group=self._group)
        until(self._listening, "the server's start")

    def _listening(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, Path(f"{self.folder}/postgres.log").read_text()
        with contextlib.suppress(psycopg.OperationalError):
            self.connect().close()
            return True
        return False

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        """Connect, in autocommit mode."""
        return psycopg.connect(f"{self.address}/{database}", autocommit=True, connect_timeout=5)

    def database(self) -> str:
        """Make an empty database, and return its URL."""
        name = f"test_{os.getpid()}_{next(serials)}"
        with self.connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return f"{self.address}/{name}"

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Connected, and silent: every process of the server is stopped."""
        stopped = [self.pid, *self._children()]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _children(self) -> list[int]:
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in listed.split()]

    def crash(self) -> None:
        """End it at once, as a power cut would: it recovers at the next start."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        """End it in order; clients are cut off."""
        self._end(signal.SIGINT)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.crash()

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait()

    @property
    def _group(self) -> int | None:
        return None if self.user is None else _group_of(self.user)

    def _own(self, folder: str) -> None:
        if self.user is not None:
            shutil.chown(folder, self.user)

    def _run(self, program: str, *words: str) -> None:
        command = [f"{self._programs}/{program}", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, user=self.user, group=self._group, cwd=self.folder
        )
        assert done.returncode == 0, done.stderr


class PgBouncer:
    """A PgBouncer in transaction mode before a server."""

    def __init__(self, server: PostgresServer, folder: str, **settings: str) -> None:
        if shutil.which("pgbouncer") is None and not Path("/usr/sbin/pgbouncer").exists():
            not_here("pgbouncer is not installed")
        self.server = server
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        user = unprivileged()
        if user is not None:
            shutil.chown(folder, user)
        chosen = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": folder,
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": "20",
            "max_client_conn": "400",
            "ignore_startup_parameters": "extra_float_digits",
            "logfile": f"{folder}/pgbouncer.log",
            **settings,
        }
        lines = [
            "[databases]",
            f"* = host=127.0.0.1 port={server.port} user=postgres",
            "[pgbouncer]",
            *(f"{k} = {v}" for k, v in chosen.items()),
        ]
        ini = Path(folder, "pgbouncer.ini")
        ini.write_text("\n".join(lines) + "\n")
        program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
        group = None if user is None else _group_of(user)
        self._process = subprocess.Popen(
            [program, str(ini)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=user, group=group
        )
        until(self._listening, "PgBouncer's start")

    @property
    def address(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}"

    def _listening(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "PgBouncer ended"
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(f"{self.address}/postgres", connect_timeout=5).close()
            return True
        return False

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _programs() -> str:
    """Return the folder of the newest server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    if not found:
        not_here("postgresql is not installed")
    return str(found[-1].parent)


def _group_of(user: str) -> int:
    return pwd.getpwnam(user).pw_gid


@contextlib.contextmanager
def postgres_server(*settings: str) -> Iterator[PostgresServer]:
    """Start a server, each setting like ``fsync=off``; it is gone when the block ends."""
    with tempfile.TemporaryDirectory(prefix="lessor-postgres-") as folder:
        server = PostgresServer(folder, *settings)
        try:
            yield server
        finally:
            server.end()


@contextlib.contextmanager
def pgbouncer(server: PostgresServer, **settings: str) -> Iterator[PgBouncer]:
    """Start a PgBouncer before the server."""
    with tempfile.TemporaryDirectory(prefix="lessor-pgbouncer-") as folder:
        bouncer = PgBouncer(server, folder, **settings)
        try:
            yield bouncer
        finally:
            bouncer.end()
