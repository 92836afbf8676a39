"""``lessor node`` and ``lessor cluster``."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from tests.servers import free_port
from tests.servers.paxos import PaxosCluster, PaxosNode, paxos_cluster

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
    assert running.wait(60) == 0
    assert cli("cluster", "status", "--url", url).returncode == 1


def test_three_of_them_of_which_one_loses_its_data(cli: Cli) -> None:
    """It is not taken for a new one: it may have promised something."""
    port, data = free_ports(3), f"{cli.folder}/data"
    words = ["cluster", "start", "--nodes", "3", "--port", str(port), "--data", data]
    url = f"paxos://{','.join(f'127.0.0.1:{port + at}' for at in range(3))}"
    with running(cli, *words) as (line, *_):
        assert line == f"3 nodes run on this host: {url}\n"
        shown = cli("cluster", "status", "--url", url)
        assert [line.split("\t")[2:4] for line in shown.stdout.splitlines()] == 3 * [["serving", "yes"]]
        assert shown.stderr == "3 of 3 vote, and 2 are a majority: 1 more may fail\n"
    shutil.rmtree(f"{data}/b")
    with running(cli, *words) as (line, *_):
        assert line == "the data of b are gone: silent for two minutes, and then the others are asked\n"
        shown = cli("cluster", "status", "--url", url)
        assert shown.returncode == 0
        assert [line.split("\t")[:4:3] for line in shown.stdout.splitlines()] == [
            ["a", "yes"],
            ["b", "no"],
            ["c", "yes"],
        ]
        assert shown.stderr == "2 of 3 vote, and 2 are a majority: none more may fail\n"
        assert cli("run", "job", "--url", url, "--", "true").returncode == 0
    fewer = cli(*words[:3], "1", *words[4:])
    assert fewer.returncode == 78
    assert "c would be missing" in fewer.stderr
    shutil.rmtree(f"{data}/b")
    shutil.rmtree(f"{data}/c")
    again = cli(*words)
    assert again.returncode == 78
    assert "the data of b, c are gone, and so of most nodes" in again.stderr


@contextlib.contextmanager
def running(cli: Cli, *words: str) -> Iterator[list[str]]:
    """Start it; yield what it says, up to how to end it."""
    process = cli.start(*words)
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or not lines[-1].startswith("Ctrl-C"):
        lines.append(process.stdout.readline())
        assert lines[-1], "it ended"
    yield lines
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def free_ports(count: int) -> int:
    """Return the first of so many in a row."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


def test_status_shows_each_node(cli: Cli, cluster: PaxosCluster) -> None:
    shown = cli("cluster", "status", "--url", cluster.url)
    assert shown.returncode == 0
    assert [line.split("\t")[:4] for line in shown.stdout.splitlines()] == [
        [node.name, node.place, "serving", "yes"] for node in cluster.nodes
    ]


def test_status_says_whose_word_counts(cli: Cli) -> None:
    with paxos_cluster() as cluster:
        a, b, c = cluster.nodes
        a.kill()
        found = {
            node["at"]: node for node in json.loads(cli("cluster", "status", "--json", "--url", cluster.url).stdout)
        }
        assert [found[node.place]["votes"] for node in cluster.nodes] == [False, True, True]
        c.shut_down()
        other = PaxosNode(c.folder, "d")
        other.port = a.port
        c.launch([b, c, other])  # its cluster is another one
        c.wait()
        shown = cli("cluster", "status", "--url", cluster.url)
        assert shown.returncode == 1
        votes = {line.split("\t")[1]: line.split("\t")[3] for line in shown.stdout.splitlines()}
        assert votes == {a.place: "no", b.place: "no: its cluster is a, b, c", c.place: "no: its cluster is b, c, d"}
        assert shown.stderr == "0 of 3 vote, and 2 are a majority: nothing is granted or renewed until 2 more do\n"


def test_health_and_metrics(cluster: PaxosCluster) -> None:
    node = cluster.nodes[0]
    assert node.get("health") == (200, "serving\n")
    code, text = node.get("metrics")
    assert code == 200
    assert "# TYPE lessor_node_live_leases gauge" in text
    assert "lessor_node_serving 1\n" in text
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
        (["--listen", "h..x:7"], "can't listen on h..x:7: no host has such a name"),
        (["--listen", "h1:7", "--http", "h1:7"], "h1:7 can't be both for clients and for --http"),
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
