"""TLS, to one server, to Sentinels and their master, and to a Cluster."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Release, Unknown
from lessor.errors import StoreUnavailable
from lessor.testing.conformance.base import until
from tests.needs import not_here
from tests.servers import free_port
from tests.servers.redis import redis_server
from tests.servers.redis_cluster import SLOTS
from tests.servers.redis_sentinel import SERVICE, Sentinel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lessor.stores.redis import RedisStore
    from tests.servers.redis import RedisServer


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for this host, which is its own authority; the key is beside it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        not_here("openssl is not installed")
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        [
            openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
            "-keyout", folder / "key.pem", "-out", folder / "certificate.pem", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return folder / "certificate.pem"


def settings(certificate: Path) -> dict[str, str]:
    return {
        "tls-cert-file": str(certificate),
        "tls-key-file": str(certificate.with_name("key.pem")),
        "tls-ca-cert-file": str(certificate),
        "tls-auth-clients": "no",
        "tls-replication": "yes",
    }


def options(certificate: Path) -> list[str]:
    return [word for name, value in settings(certificate).items() for word in (f"--{name}", value)]


def granted(store: RedisStore, op: Acquire) -> bool:
    return isinstance(store.apply([op], timeout=60)[0], Granted)


def test_one_server(certificate: Path, open_store: Callable[[str], RedisStore]) -> None:
    with redis_server(*options(certificate), tls=True) as server:
        store = open_store(f"rediss://localhost:{server.port}/0?ssl_ca_certs={certificate}")
        assert granted(store, Acquire("job", "A", "h", 30 * SECOND))
        subscription = store.subscribe("")
        store.apply([Release("job", "A")], timeout=60)
        assert subscription.get(60)
        many = [Acquire(f"many/{n}", "A", "h" * 200, 30 * SECOND) for n in range(500)]
        assert all(isinstance(outcome, Granted) for outcome in store.apply(many, timeout=60))
        assert len(list(store.scan("many/", timeout=60))) == 500
        with server.standing_still():
            assert "didn't answer" in str(store.apply([Release("job", "A")], timeout=0.1)[0].error)  # type: ignore[union-attr]
        subscription.close()
        untrusted = open_store(f"rediss://localhost:{server.port}/0")
        outcome = untrusted.apply([Release("job", "A")], timeout=60)[0]
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.error, StoreUnavailable)
        assert "certificate" in str(outcome.error).lower()


def test_sentinel(certificate: Path, tmp_path: Path, open_store: Callable[[str], RedisStore]) -> None:
    lines = [f"{name} {value}" for name, value in settings(certificate).items()]
    with redis_server(*options(certificate), tls=True) as master, contextlib.ExitStack() as ending:
        sentinel = Sentinel(str(tmp_path), master, 20_000, *lines, tls=True)
        ending.callback(sentinel.end)
        store = open_store(f"rediss+sentinel://localhost:{sentinel.port}/{SERVICE}?ssl_ca_certs={certificate}")
        until(lambda: granted(store, Acquire("job", "A", "h", 30 * SECOND)), "a Sentinel that knows the master")
        plain = open_store(f"redis+sentinel://localhost:{sentinel.port}/{SERVICE}")
        assert isinstance(plain.apply([Release("job", "A")], timeout=60)[0], Unknown)


def test_cluster(certificate: Path, open_store: Callable[[str], RedisStore]) -> None:
    cluster = ("--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", str(free_port()))
    with redis_server(*options(certificate), *cluster, tls=True) as server:
        with server.client(ssl=True, ssl_ca_certs=str(certificate)) as raw:
            raw.execute_command("CLUSTER", "ADDSLOTS", *range(SLOTS))
        store = open_store(f"rediss+cluster://localhost:{server.port}/?ssl_ca_certs={certificate}")
        until(lambda: granted(store, Acquire("job", "A", "h", 30 * SECOND)), "the Cluster")
        subscription = store.subscribe("")
        until(lambda: bool(subscription.address), "a connection for notifications")


@pytest.mark.parametrize("scheme", ["rediss", "valkeys", "rediss+cluster"])
def test_tls_to_a_port_without_tls_says_so(
    server: RedisServer, open_store: Callable[[str], RedisStore], scheme: str
) -> None:
    store = open_store(f"{scheme}://localhost:{server.port}/0")
    outcome = store.apply([Release("job", "A")], timeout=0.3)[0]
    assert isinstance(outcome, Unknown)
    assert "doesn't answer in TLS: is this a port without TLS?" in str(outcome.error)
