"""A holder stopped beyond its TTL and resumed: refused by each guard, and not refused without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from lessor import Client, Fenced
from lessor.fencing import Fence
from tests.fencing.holder import RESOURCE, WRITE
from tests.servers.redis import redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lessor import Lease
    from tests.servers.redis import RedisServer
    from tests.servers.s3 import S3Server


class Place(Protocol):
    """What is written to, as the test sees it."""

    path: str

    @property
    def body(self) -> str: ...


class MemoryPlace:
    """Memory of this process, which does the writes for the holders."""

    path = ""

    def __init__(self) -> None:
        self.fence = Fence()
        self.body = "nothing"

    def write(self, bearer: Any, body: str) -> None:
        with self.fence.guard(bearer):
            self.body = body

    def serve(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do the write that another process asks for."""
        try:
            if request["guarded"]:
                self.write((request["resource"], request["token"]), request["body"])
            else:
                self.body = request["body"]
        except Fenced as refused:
            return {"refused": str(refused)}
        return {"refused": None}


class FilePlace:
    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "place")
        Path(self.path).write_text("nothing")

    @property
    def body(self) -> str:
        return Path(self.path).read_text()


class SqlPlace:
    def __init__(self, url: str, path: str) -> None:
        self.path = path
        self.engine = sa.create_engine(url, poolclass=NullPool)
        with self.engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE doc (body TEXT)"))
            connection.execute(sa.text("INSERT INTO doc VALUES ('nothing')"))

    @property
    def body(self) -> str:
        with self.engine.connect() as connection:
            return str(connection.scalar(sa.text("SELECT body FROM doc")))


class RedisPlace:
    def __init__(self, server: RedisServer) -> None:
        self.path = server.url
        self.server = server

    @property
    def body(self) -> str:
        with self.server.client() as client:
            return str(client.get("doc"))


class S3Place:
    def __init__(self, server: S3Server) -> None:
        self.path = server.url
        self.server = server

    @property
    def body(self) -> str:
        return bytes(self.server.store().get("doc").bytes()).decode().splitlines()[-1]


@pytest.fixture(params=sorted(WRITE))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    if kind == "memory":
        yield MemoryPlace()
    elif kind == "file":
        yield FilePlace(tmp_path)
    elif kind == "s3":
        yield S3Place(request.getfixturevalue("s3"))
    elif kind.startswith("redis"):
        with redis_server() as server:
            yield RedisPlace(server)
    elif kind.startswith("sqlite"):
        file = f"{tmp_path}/data.db"
        yield SqlPlace(f"sqlite:///{file}", f"{kind}:///{file}" if "+" in kind else file)
    else:
        url = request.getfixturevalue("postgres").database()
        address = url.partition(":")[2]
        yield SqlPlace(f"postgresql+psycopg:{address}", f"{kind}:{address}" if "+" in kind else url)


def write(kind: str, place: Place, lease: Lease, body: str) -> None:
    """Write as the newer holder, through the guard."""
    if isinstance(place, MemoryPlace):
        place.write(lease, body)
    else:
        WRITE[kind](place.path, lease, body, guarded=True)


def test_a_holder_that_comes_back_is_refused_and_without_the_guard_overwrites(
    kind: str, place: Place, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/leases.db"
    command = [sys.executable, "-m", "tests.fencing.holder", url, kind, place.path]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as stopped:
        assert stopped.stdin is not None
        assert stopped.stdout is not None

        def answer() -> dict[str, Any]:
            assert stopped.stdin is not None
            assert stopped.stdout is not None
            while True:
                said: dict[str, Any] = json.loads(stopped.stdout.readline())
                if "body" not in said:
                    return said
                assert isinstance(place, MemoryPlace)
                stopped.stdin.write(json.dumps(place.serve(said)) + "\n")
                stopped.stdin.flush()

        def go_on() -> None:
            assert stopped.stdin is not None
            stopped.stdin.write("\n")
            stopped.stdin.flush()

        try:
            old_token = answer()["token"]
            assert os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1])
            with Client(url, holder="newer") as leases:
                lease = leases.acquire(RESOURCE, ttl=30, wait=30)  # comes when the stopped one's time is over
                assert lease.token > old_token
                write(kind, place, lease, "newer")
                os.kill(stopped.pid, signal.SIGCONT)

                refused = answer()
                assert refused["refused"] in ("Fenced", "LessorError")
                assert f"token {old_token} is refused: token {lease.token}" in refused["text"]
                assert place.body == "newer"

                go_on()
                assert answer()["refused"] == "LeaseLost"
                assert place.body == "newer"

                go_on()
                assert answer()["refused"] is None
                assert place.body == "stale"  # that is what the guard is for
                lease.check()
            go_on()
            assert stopped.wait(60) == 0
        finally:
            stopped.kill()
