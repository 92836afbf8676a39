"""Who may talk to a node: secrets, certificates, and clusters that aren't what the URL says."""

from __future__ import annotations

import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from lessor import Client
from lessor.errors import ConfigError, LessorError, StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.stores.registry import open_store
from tests.needs import not_here
from tests.servers.paxos import PaxosCluster, paxos_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "correct horse battery staple"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A secret, and a certificate for this host, which is its own authority."""
    folder = tmp_path_factory.mktemp("trust")
    (folder / "secret").write_text(SECRET + "\n")
    for name in ("ours", "theirs"):
        try:
            subprocess.run(
                [
                    "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "1", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                ],
                check=True,
                capture_output=True,
            )  # fmt: skip
        except FileNotFoundError:
            not_here("openssl is not installed")
    return folder


@pytest.fixture(scope="module")
def sealed(folder: Path) -> Iterator[PaxosCluster]:
    """Three nodes with TLS for both sides, and a secret on top."""
    words = ["--tls-cert", "ours.pem", "--tls-key", "ours.key", "--tls-ca", "ours.pem", "--secret-file", "secret"]
    settings = [str(folder / word) if not word.startswith("--") else word for word in words]
    with paxos_cluster(3, *settings, "--tls-clients") as cluster:
        yield cluster


def sealed_url(cluster: PaxosCluster, folder: Path, ca: str = "ours", own: str = "ours", secret: str = "secret") -> str:
    return (
        f"{cluster.url.replace('paxos:', 'paxoss:')}?ca={folder}/{ca}.pem&cert={folder}/{own}.pem&key={folder}/{own}.key"
        f"&secret_file={folder}/{secret}"
    )


def refusal(url: str) -> LessorError:
    with Client(url, timeout=1) as client, pytest.raises(LessorError) as refused:
        client.try_acquire("job", ttl=0.2)  # for so long it is tried to give it back
    return refused.value


def test_leases_over_tls_with_certificates_on_both_sides_and_a_secret(sealed: PaxosCluster, folder: Path) -> None:
    with Client(sealed_url(sealed, folder)) as one, Client(sealed_url(sealed, folder)) as other:
        lease = one.acquire("job", ttl=5, metadata={"long": "x" * 60_000})
        assert other.try_acquire("job", ttl=5) is None
        assert other.get("job").metadata == lease.metadata  # type: ignore[union-attr]
        leases = [one.acquire(f"many/{n}", ttl=5) for n in range(20)]
        assert len(other.list("many/")) == len(leases)
        lease.release()
        assert other.acquire("job", ttl=5, wait=5).token > lease.token


def test_a_node_with_a_certificate_from_elsewhere_is_not_trusted(sealed: PaxosCluster, folder: Path) -> None:
    error = refusal(sealed_url(sealed, folder, ca="theirs"))
    assert isinstance(error, ConfigError)
    assert "is not trusted" in str(error)


def test_a_client_with_a_certificate_from_elsewhere_is_not_taken(sealed: PaxosCluster, folder: Path) -> None:
    assert isinstance(refusal(sealed_url(sealed, folder, own="theirs")), StoreUnavailable)


def test_a_handshake_that_is_not_gone_on_with_is_ended(sealed: PaxosCluster) -> None:
    """Or they would pile up: nothing counts them before they are connections."""
    with socket.create_connection((sealed.nodes[0].host, sealed.nodes[0].port), 40) as sock:
        sock.sendall(b"\x16\x03\x01")
        begun = SYSTEM.now()
        assert sock.recv(1) == b""
        assert SYSTEM.now() - begun < 30e9


def test_a_client_without_tls_is_not_taken(sealed: PaxosCluster) -> None:
    assert isinstance(refusal(sealed.url), StoreUnavailable)


def test_a_wrong_secret_is_said_so_and_not_shown(sealed: PaxosCluster, folder: Path) -> None:
    (folder / "other").write_text("something else, as long")
    error = refusal(sealed_url(sealed, folder, secret="other"))
    assert isinstance(error, ConfigError)
    assert "the secret is another one" in str(error)
    assert "something else" not in str(error)


def test_no_secret_where_one_is_wanted_and_one_where_none_is(sealed: PaxosCluster, folder: Path) -> None:
    assert "wants a secret" in str(refusal(sealed_url(sealed, folder).partition("&secret_file")[0]))
    with paxos_cluster(1) as plain:
        assert "has no secret" in str(refusal(plain.url.replace("//", f"//:{SECRET.replace(' ', '_')}@")))


def test_the_url_that_is_shown_has_no_secret() -> None:
    url = f"paxos://:{SECRET.replace(' ', '_')}@h1,h2,h3:7500?namespace=n"
    store = open_store(url, SYSTEM)
    assert store.url == "paxos://h1:7420,h2:7420,h3:7500/?namespace=n"
    assert "horse" not in repr(store)
    store.close()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("paxos://h1,h2", "names 2 nodes"),
        ("paxos://h1,h2,h2", "names a node twice"),
        ("paxos://h1,,h3", "no HOST:PORT"),
        ("paxos://h1:x,h2,h3", "no HOST:PORT"),
        ("paxos://h1,h2,h3/path", "has no path"),
        ("paxos://me:secret@h1", "has no users"),
        ("paxos://:short@h1", "has 5 bytes"),
        ("paxos://h1?ca=x", "has no option 'ca'; there are: namespace, secret_env, secret_file"),
        ("paxos://h1?secret_file=/nowhere", "can't be read"),
        ("paxoss://h1?ca=/nowhere", "certificates can't be used"),
    ],
)
def test_urls_that_cannot_work(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        open_store(url, SYSTEM)


def test_a_url_that_names_too_few_nodes_is_refused() -> None:
    """A majority of those that it names would be none of the cluster."""
    with paxos_cluster(3) as cluster:
        error = refusal(f"paxos://{cluster.nodes[0].place}")
        assert isinstance(error, ConfigError)
        assert "names 1 nodes, and the cluster of" in str(error)
        twice = f"paxos://{cluster.nodes[0].place},localhost:{cluster.nodes[0].port},{cluster.nodes[1].place}"
        with Client(twice, timeout=3) as client:
            client.try_acquire("job", ttl=5)  # two of three are there, and counted as two
        assert "h1" not in str(error)


def test_tls_to_nodes_without_tls_says_so() -> None:
    with paxos_cluster(1) as plain:
        error = refusal(plain.url.replace("paxos://", "paxoss://"))
    assert isinstance(error, StoreUnavailable)
    assert "doesn't answer in TLS: is this a port without TLS?" in str(error)


def test_a_secret_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASE_SECRET", SECRET)
    with paxos_cluster(1) as plain:
        assert "has no secret" in str(refusal(f"{plain.url}?secret_env=LEASE_SECRET"))
    with pytest.raises(ConfigError, match="several passwords: secret_file and secret_env"):
        open_store("paxos://h1?secret_env=LEASE_SECRET&secret_file=x", SYSTEM)
