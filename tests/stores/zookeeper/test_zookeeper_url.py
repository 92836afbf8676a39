"""The URL: what it may say, and that its password stays there."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from lessor import Client
from lessor.errors import ConfigError, StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import StoreURL
from lessor.stores.registry import open_store
from lessor.stores.zookeeper.address import ZooKeeperAddress
from tests.servers import free_port

if TYPE_CHECKING:
    from tests.servers.zookeeper import ZooKeeperServer


def address(url: str) -> ZooKeeperAddress:
    return ZooKeeperAddress(StoreURL.parse(url))


def test_servers_chroot_and_namespace() -> None:
    found = address("zookeeper://a,b:2182,[::1]:2183/x/y?namespace=n")
    assert found.nodes == [("a", 2181), ("b", 2182), ("::1", 2183)]
    assert (found.chroot, found.namespace) == ("/x/y", "n")
    assert address("zookeeper://").nodes == [("localhost", 2181)]
    assert address("zookeeper://").chroot == "/lessor"


@pytest.mark.parametrize(
    "url",
    [
        "zookeeper://a,,b",
        "zookeeper://a:x",
        "zookeeper://a/zookeeper/x",
        "zookeeper://a/../x",
        "zookeeper://a?tick=0",
        "zookeeper://a?tick=soon",
        "zookeeper://a?ttl=5",
        "zookeeper://a?ssl_ca_certs=x",
        "zookeeper://a?tls=perhaps",
        "zookeeper://a?tls=true&ssl_cert_reqs=optional",
        "zookeeper://a?sasl=NTLM",
        "zookeeper://a?sasl_service=x",
        "zookeeper://a?acl=creator",
        "zookeeper://a?acl=mine",
    ],
)
def test_what_can_not_be_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        address(url)


def test_tls_is_passed_on() -> None:
    settings = address(
        "zookeeper://a?tls=true&ssl_ca_certs=ca.pem&ssl_certfile=c&ssl_keyfile=k&ssl_password=p"
    ).settings
    assert settings == {
        "use_ssl": True,
        "ca": "ca.pem",
        "certfile": "c",
        "keyfile": "k",
        "keyfile_password": "p",
        "verify_certs": True,
        "check_hostname": True,
    }


def test_the_nodes_of_a_user_are_its_own_and_its_password_is_never_shown(
    zookeeper: ZooKeeperServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("lessor").setLevel(logging.DEBUG)
    url = f"zookeeper://me:geheim%40@{zookeeper.address}/mine?namespace={namespace}"
    with Client(url) as client, client.acquire("job", ttl=20):
        assert "geheim" not in client.url
        assert "geheim" not in repr(client._engine.store)
        stranger = KazooClient(zookeeper.address)
        stranger.start()
        with pytest.raises(NoAuthError):
            stranger.get(f"/mine/{namespace}/leases/job")
        stranger.stop()
        stranger.close()
        with (
            Client(f"{zookeeper.url}/mine?namespace={namespace}") as other,
            pytest.raises(ConfigError, match=r"doesn't permit .* or mend the nodes' ACLs"),
        ):
            other.acquire("job", ttl=20)
    assert "geheim" not in caplog.text


def test_a_server_that_is_not_there_gives_one_error_with_its_reason_and_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = open_store(f"zookeeper://127.0.0.1:{free_port()}", SYSTEM)
    with contextlib.closing(store), pytest.raises(StoreUnavailable, match=r"no connection within \S+ s: .*refused"):
        store.read(["job"], timeout=1)
    assert caplog.text == ""
