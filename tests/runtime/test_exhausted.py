"""No free descriptor, no thread to be had: `StoreUnavailable` that says why, before anything is asked for.

For each k, the k-th descriptor or thread and all later ones are refused, in a process of its own.
"""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.scale import SCALE
from tests.servers.etcd import etcd_server
from tests.servers.paxos import paxos_cluster
from tests.servers.postgres import postgres_server
from tests.servers.redis import redis_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.heavy

MOST = 14
"""More than a client needs of either before it holds a lease."""
STORES = ["memory", "sqlite", "redis"] + ["postgresql", "etcd", "paxos"] * (SCALE >= 1)
REASONS = ("file descriptor", "Too many open files", "can't start new thread")


@pytest.fixture(scope="module")
def url_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Return what returns the URL of a store, and starts a server for it if need be."""
    with contextlib.ExitStack() as servers:

        @functools.cache
        def url_of(store: str) -> str:
            if store == "redis":
                return servers.enter_context(redis_server()).url
            if store == "postgresql":
                return servers.enter_context(postgres_server("fsync=off")).address + "/postgres"
            if store == "etcd":
                return servers.enter_context(etcd_server()).url
            if store == "paxos":
                return servers.enter_context(paxos_cluster()).url
            return "memory://exhausted" if store == "memory" else f"sqlite:///{tmp_path_factory.mktemp('files')}/x.db"

        yield url_of


@pytest.mark.parametrize("kind", ["descriptors", "threads"])
@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("store", STORES)
def test_nothing_is_asked_for_that_could_not_be_kept(
    url_of: Callable[[str], str], store: str, face: str, kind: str
) -> None:
    url = f"{url_of(store)}?namespace={face}-{kind}"
    command = [sys.executable, "-m", "tests.runtime.exhausted", url, face, kind, str(MOST)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    told = sorted(map(json.loads, done.stdout.splitlines()), key=lambda one: one["k"])
    assert [one["k"] for one in told] == list(range(MOST)), done.stderr[-3000:]
    for one in told:
        assert not one["left"], one
        if one["stage"] == "held":
            assert one["renewed"], one
        else:
            assert one["error"] == "StoreUnavailable", one
            assert any(reason in one["text"] for reason in REASONS), one
    assert told[0]["stage"] != "held"
    assert told[-1]["stage"] == "held"
