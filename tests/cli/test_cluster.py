"""``leasehold node`` and ``leasehold cluster``."""

from __future__ import annotations

import json
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from tests.servers import free_port
from tests.servers.paxos import PaxosCluster, paxos_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.processes import Cli


@pytest.fixture(scope="module")
def cluster() -> Iterator[PaxosCluster]:
    with paxos_cluster() as cluster:
        yield cluster


def test_a_cluster_for_trying_out(cli: Cli) -> None:
    port = free_port()
    running = cli.start("cluster", "start", "--nodes", "1", "--port", str(port), "--data", f"{cli.folder}/data")
    assert running.stdout is not None
    lines = [running.stdout.readline() for _ in range(4)]
    assert f"paxos://127.0.0.1:{port}" in lines[0]
    assert lines[-1] == "Ctrl-C ends them\n"
    url = f"paxos://127.0.0.1:{port}"
    assert cli("run", "job", "--url", url, "--", "true").returncode == 0
    (node,) = json.loads(cli("cluster", "status", "--json", "--url", url).stdout)
    assert (node["node"], node["state"], node["leases"]) == ("a", "serving", 0)
    running.send_signal(signal.SIGTERM)
    assert running.wait(20) == 0
    assert cli("cluster", "status", "--url", url).returncode == 1


def test_status_shows_each_node(cli: Cli, cluster: PaxosCluster) -> None:
    shown = cli("cluster", "status", "--url", cluster.url)
    assert shown.returncode == 0
    assert [line.split("\t")[:3] for line in shown.stdout.splitlines()] == [
        [node.name, node.place, "serving"] for node in cluster.nodes
    ]


def test_health_and_metrics(cluster: PaxosCluster) -> None:
    node = cluster.nodes[0]
    assert node.get("health") == (200, "serving\n")
    code, text = node.get("metrics")
    assert code == 200
    assert "# TYPE leasehold_node_live_leases gauge" in text
    assert "leasehold_node_serving 1\n" in text
    assert node.get("elsewhere")[0] == 404


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--peers", "b=h1"], "has 2 nodes"),
        (["--peers", "a=h1,b=h2"], "among its own peers"),
        (["--peers", "b"], "ID=HOST:PORT"),
        (["--peers", "b=h1,b=h2"], "peer 'b' is there twice"),
        (["--peers", "b=h1:7,c=H1:7"], "h1:7 is the place of both 'b' and 'c': each node has its own"),
        (["--listen", "h1:7", "--peers", "b=h1:7,c=h2"], "h1:7 is the place of both 'a' and 'b'"),
        (["--peers", "=h1,c=h2"], "'' can't name a node"),
        (["--id", ""], "'' can't name a node"),
        (["--listen", "h:x"], "no HOST:PORT"),
        (["--max-ttl", "2h"], "from 1 s to 1 h"),
        (["--tls-key", "x"], "TLS needs a certificate"),
        (["--secret-file", "/nowhere"], "can't be read"),
    ],
)
def test_settings_that_cannot_work_are_refused(cli: Cli, words: list[str], why: str) -> None:
    ended = cli("node", "--id", "a", "--data", f"{cli.folder}/data", *words)
    assert ended.returncode == 78
    assert why in ended.stderr


def test_a_request_for_health_that_never_ends_is_answered_all_the_same(cluster: PaxosCluster) -> None:
    node = cluster.nodes[0]
    for head in (
        b"GET /" + 100_000 * b"x" + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + 5000 * b"X-More: and more\r\n",
    ):
        with socket.create_connection((node.host, node.http_port), 10) as sock:
            sock.sendall(head)
            answer = sock.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
        assert answer.endswith(b"the request is longer than 16384 bytes\n")
    for head in (b"\r\n\r\n", b"POST /health HTTP/1.1\r\n\r\n", b"\xff\xfe\r\n\r\n"):
        with socket.create_connection((node.host, node.http_port), 10) as sock:
            sock.sendall(head)
            assert sock.makefile("rb").read().startswith(b"HTTP/1.1 400 ")
    assert "Traceback" not in node.log()


def test_init_is_for_new_clusters_only(cli: Cli) -> None:
    words = ["node", "--id", "a", "--data", f"{cli.folder}/data", "--init"]
    assert cli(*words).returncode == 0
    again = cli(*words)
    assert again.returncode == 78
    assert "in use already" in again.stderr


def test_a_port_in_use_is_said_so(cli: Cli, cluster: PaxosCluster) -> None:
    ended = cli("node", "--id", "z", "--data", f"{cli.folder}/data", "--listen", cluster.nodes[0].place)
    assert ended.returncode == 78
    assert f"can't listen on {cluster.nodes[0].place}: Address already in use" in ended.stderr


def test_status_of_another_store_is_refused(cli: Cli) -> None:
    ended = cli("cluster", "status")
    assert ended.returncode == 78
    assert "only paxos:// clusters" in ended.stderr
