"""Servers that speak TLS, or want to know who one is."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from lessor import Client
from lessor.errors import ConfigError, StoreUnavailable
from tests.needs import not_here
from tests.servers import free_port
from tests.servers.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JAAS = """
Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_me="geheim"; };
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("login")


@pytest.fixture(scope="module")
def certificate(folder: Path) -> Path:
    """A certificate that vouches for itself, and its key."""
    key, certificate, both = folder / "key.pem", folder / "certificate.pem", folder / "both.pem"
    done = subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate),
        ],
        capture_output=True,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        not_here("openssl can't make a certificate")
    both.write_text(key.read_text() + certificate.read_text())
    return certificate


@pytest.fixture(scope="module")
def secure(folder: Path, certificate: Path) -> Iterator[tuple[ZooKeeperServer, int]]:
    """A server, and its port for TLS; it also takes SASL's DIGEST-MD5."""
    port = free_port()
    (folder / "jaas.conf").write_text(JAAS)
    place = folder / "server"
    place.mkdir()
    server = ZooKeeperServer(
        str(place),
        f"secureClientPort={port}\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
        f"ssl.keyStore.location={folder}/both.pem\nssl.trustStore.location={certificate}\nssl.clientAuth=none\n"
        "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n",
    )
    server.java_options = (f"-Djava.security.auth.login.config={folder}/jaas.conf",)
    try:
        server.start()
        yield server, port
    finally:
        server.end()


def test_tls_with_a_certificate_that_is_checked(secure: tuple[ZooKeeperServer, int], certificate: Path) -> None:
    url = f"zookeeper://localhost:{secure[1]}/tls?tls=true&ssl_ca_certs={certificate}"
    with Client(url, timeout=20) as client, client.acquire("job", ttl=20) as lease:
        lease.renew()
        assert client.get("job") is not None


def test_tls_with_a_certificate_that_nobody_knows(secure: tuple[ZooKeeperServer, int]) -> None:
    with pytest.raises(ConfigError, match="not trusted"):
        Client(f"zookeeper://localhost:{secure[1]}/tls?tls=true")
    with pytest.raises(ConfigError, match="not there"):
        Client(f"zookeeper://localhost:{secure[1]}/tls?tls=true&ssl_ca_certs=/nowhere.pem")


def test_sasl(secure: tuple[ZooKeeperServer, int]) -> None:
    pytest.importorskip("puresasl")
    place = f"{secure[0].address}/sasl?sasl=DIGEST-MD5"
    with Client(f"zookeeper://me:geheim@{place}", timeout=20) as client, client.acquire("job", ttl=20) as lease:
        lease.renew()
        assert "geheim" not in client.url
    with Client(f"zookeeper://me:wrong@{place}", timeout=5) as client, pytest.raises(ConfigError, match="refuses"):
        client.acquire("job", ttl=20)


def test_tls_to_a_port_without_tls_says_so(zookeeper: ZooKeeperServer) -> None:
    with pytest.raises(StoreUnavailable, match="doesn't answer in TLS: is this a port without TLS"):
        Client(f"{zookeeper.url}/tls?tls=true", timeout=1).acquire("job", wait=0)


def test_a_password_from_a_file(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("geheim\n")
    place = f"{zookeeper.address}/file"
    with Client(f"zookeeper://me@{place}?password_file={tmp_path}/password", timeout=20) as client:
        client.acquire("job", ttl=20).release()
    with Client(f"zookeeper://me:geheim@{place}", timeout=20) as client:  # the same user: it may use the nodes
        client.acquire("job", ttl=20).release()
