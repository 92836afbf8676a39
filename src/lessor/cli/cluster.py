"""``lessor cluster``: some nodes on this host, for trying it out; and how the nodes of any cluster are.

Nodes on one host share its fate. For more than trying, they belong on three hosts.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

from lessor.cli.codes import NOTHING
from lessor.cli.durations import shown
from lessor.cli.screen import Cell, Screen
from lessor.errors import ConfigError, LessorError
from lessor.stores.base import StoreURL

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from lessor.stores.paxos.address import PaxosAddress, Place
    from lessor.stores.paxos.frames import Status

PATIENCE: Final = 2.0
STARTING: Final = 20.0
ENDING: Final = 10.0
NAMES: Final = "abcde"

# --- start --------------------------------------------------------------------------------------------------------


def start(args: argparse.Namespace) -> int:
    """Run some nodes until they are told to end."""
    names = NAMES[: args.nodes]
    places = {name: f"127.0.0.1:{args.port + at}" for at, name in enumerate(names)}
    url = f"paxos://{','.join(places.values())}"
    _address(url)
    screen = Screen()
    over = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: over.set())
    with _folder(args.data) as folder, contextlib.ExitStack() as stack:
        _prepare(folder, names, screen)
        nodes = {}
        for name in names:
            nodes[name] = _launch(name, places, folder)
            stack.callback(_end, nodes[name])
        for node in nodes.values():
            stack.callback(node.send_signal, signal.SIGTERM)  # all at once; then each is waited for
        _await_start(url, nodes)
        screen.line(f"{len(nodes)} nodes run on this host: {screen.paint(url, 'cyan')}")
        screen.line(screen.paint(f"try:  lessor run job --url {url} -- sleep 5", "dim"))
        screen.line(screen.paint(f"      lessor cluster status --url {url}", "dim"))
        screen.line(
            "Ctrl-C ends them" if args.data else "Ctrl-C ends them, and their data is gone then (--data keeps it)"
        )
        gone: set[str] = set()
        while not over.wait(0.2):
            for name, node in nodes.items():
                if node.poll() is not None and name not in gone:
                    gone.add(name)
                    screen.line(f"node {name} has ended ({node.returncode}); a minority may")
    return 0


@contextlib.contextmanager
def _folder(data: str | None) -> Iterator[str]:
    if data is not None:
        try:
            os.makedirs(data, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"the data folder {data!r} can't be used: {error.strerror}") from error
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="lessor-cluster-") as folder:
        yield folder


def _prepare(folder: str, names: str, screen: Screen) -> None:
    """Say that the cluster is new, if it is: a node without data, among others that have some, has lost its disk."""
    from lessor.node.process import init  # noqa: PLC0415 - needs msgspec

    known = [name for name in NAMES if _has_data(os.path.join(folder, name, "mark"))]
    if not known:
        for name in names:
            init(os.path.join(folder, name), name)
        return
    others = [name for name in known if name not in names]
    if others:
        raise ConfigError(
            f"{folder!r} is that of more nodes: {', '.join(others)} would be missing; start all, or begin anew"
        )
    lost = [name for name in names if name not in known]
    if len(known) <= len(names) // 2:
        raise ConfigError(
            f"in {folder!r} the data of {', '.join(lost)} are gone, and so of most nodes: begin anew, in an empty folder"
        )
    if lost:
        screen.line(f"the data of {', '.join(lost)} are gone: silent for two minutes, and then the others are asked")


def _has_data(mark: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.getsize(mark) > 0
    return False


def _launch(name: str, places: dict[str, str], folder: str) -> subprocess.Popen[bytes]:
    data = os.path.join(folder, name)
    peers = ",".join(f"{other}={place}" for other, place in places.items() if other != name)
    command = [
        sys.executable, "-m", "lessor", "node", "--id", name, "--data", data,
        "--listen", places[name], "--peers", peers, "--log", "text",
    ]  # fmt: skip
    with open(os.path.join(folder, f"{name}.log"), "ab") as log:
        # In a group of its own: Ctrl-C is for us, who then end them in order.
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)  # noqa: S603 - ourselves


def _await_start(url: str, nodes: dict[str, subprocess.Popen[bytes]]) -> None:
    address = _address(url)
    nap = threading.Event()
    for _ in range(int(STARTING / 0.1)):
        for name, node in nodes.items():
            if node.poll() is not None:
                raise ConfigError(f"node {name} did not start: is its port free, and its data folder not in use?")
        if all(found.status is not None for found in _ask_all(address)):
            return
        nap.wait(0.1)
    raise ConfigError(f"the nodes did not start within {STARTING:g} s")


def _end(node: subprocess.Popen[bytes]) -> None:
    try:
        node.wait(ENDING)
    except subprocess.TimeoutExpired:
        node.kill()
        node.wait()


# --- status -------------------------------------------------------------------------------------------------------


def status(args: argparse.Namespace) -> int:
    """Show how each node is, and whether its word counts. Exit code 1: no majority of them serves."""
    url = args.url or os.environ.get("LESSOR_URL")
    if not url:
        raise ConfigError("which cluster? Name it with --url or LESSOR_URL")
    found = _ask_all(_address(url))
    against = _against(found)
    votes, needed = against.count(""), len(found) // 2 + 1
    screen = Screen()
    if args.json:
        shown = [_as_json(node, why) for node, why in zip(found, against, strict=True)]
        screen.line(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        head = (
            "NODE", "AT", "STATE", "VOTES", "SILENT FOR", "LEASES", "WAITING", "FLOOR", "HIGH-WATER MARK", "CONNECTIONS",
            "UP", "CLOCKS",
        )  # fmt: skip
        rows = [_row(node, why) for node, why in zip(found, against, strict=True)]
        drop = ("HIGH-WATER MARK", "FLOOR", "CLOCKS", "CONNECTIONS", "WAITING", "UP", "SILENT FOR")
        screen.table(head, rows, cut=["NODE", "AT"], drop=drop)
        Screen(sys.stderr).line(_summary(votes, needed, len(found)))
    return 0 if votes >= needed else NOTHING


class Found(NamedTuple):
    """What a node says of itself, or why it says nothing."""

    place: Place
    status: Status | None
    cluster: tuple[str, ...] = ()
    """Who belongs to it, as this node has been told."""
    why: str = ""


def _against(found: list[Found]) -> list[str]:
    """Say for each node why clients don't count its word; empty: they do. Each has one vote, on every lease."""
    clusters = Counter(node.cluster for node in found if node.status is not None and len(node.cluster) == len(found))
    ours = [cluster for cluster, count in clusters.items() if count > len(found) // 2]
    against: list[str] = []
    counted: set[str] = set()
    for node in found:
        if node.status is None:
            against.append("away")
        elif node.cluster not in ours:
            against.append(f"its cluster is {', '.join(node.cluster)}")
        elif node.status.acceptor in counted:
            against.append(f"is {node.status.acceptor} once more")
        else:
            counted.add(node.status.acceptor)
            against.append("" if node.status.state == "serving" else node.status.state)
    return against


def _summary(votes: int, needed: int, nodes: int) -> str:
    what = f"{votes} of {nodes} {'votes' if votes == 1 else 'vote'}, and {needed} are a majority: "
    if votes < needed:
        return (
            f"{what}nothing is granted or renewed until {needed - votes} more {'does' if needed - votes == 1 else 'do'}"
        )
    return f"{what}{votes - needed or 'none'} more may fail"


def _ask_all(address: PaxosAddress) -> list[Found]:
    """Ask each node how it is."""
    with ThreadPoolExecutor(len(address.nodes)) as pool:
        return list(pool.map(lambda place: _ask(address, place), address.nodes))


def _ask(address: PaxosAddress, place: Place) -> Found:
    from lessor.stores.paxos import frames  # noqa: PLC0415 - here and below: needs msgspec
    from lessor.stores.paxos.link import ask, connect  # noqa: PLC0415

    try:
        link = connect(place, address.secret, address.context, PATIENCE)
        with contextlib.closing(link):
            answer = ask(link, frames.AskStatus(1), PATIENCE)
    except (OSError, LessorError) as error:
        return Found(place, None, why=str(error))
    if not isinstance(answer, frames.Status):
        return Found(place, None, why="it gave no status")
    return Found(place, answer, link.cluster)


def _address(url: str) -> PaxosAddress:
    if find_spec("msgspec") is None:
        raise ConfigError("paxos:// needs msgspec: pip install 'lessor[paxos]'")
    from lessor.stores.paxos.address import PaxosAddress  # noqa: PLC0415

    parsed = StoreURL.parse(url)
    if parsed.scheme not in ("paxos", "paxoss"):
        raise ConfigError(f"only paxos:// clusters have nodes to look at, and this is {parsed.scheme}://")
    return PaxosAddress(parsed)


def _row(node: Found, against: str) -> list[Cell]:
    found = node.status
    if found is None:
        return [Cell("?"), Cell(node.place), Cell("away", "red"), Cell("no"), *[Cell("")] * 7, Cell(node.why, "dim")]
    styles = ("green",) if found.state == "serving" else ("yellow",)
    return [
        Cell(found.acceptor, "cyan"),
        Cell(node.place),
        Cell(found.state, *styles),
        Cell("yes") if not against else Cell("no" if against == found.state else f"no: {against}", "red"),
        Cell(shown(found.silence_left_ns / 1e9) if found.silence_left_ns else "", right=True),
        Cell(found.live, right=True),
        Cell(found.waiting, right=True),
        Cell(found.floor, "dim", right=True),
        Cell(found.high_water, "dim", right=True),
        Cell(found.connections, right=True),
        Cell(shown(found.up_ns / 1e9), right=True),
        Cell(f"{found.clock_rate_ppm:+.1f} ppm", right=True),
    ]


def _as_json(node: Found, against: str) -> dict[str, object]:
    found = node.status
    if found is None:
        return {"at": str(node.place), "state": "away", "votes": False, "error": node.why}
    return {
        "node": found.acceptor,
        "at": str(node.place),
        "state": found.state,
        "votes": not against,
        "why_not": against,
        "silence_left": found.silence_left_ns / 1e9,
        "leases": found.live,
        "waiting": found.waiting,
        "floor": found.floor,
        "high_water_mark": found.high_water,
        "connections": found.connections,
        "up": found.up_ns / 1e9,
        "clocks_disagree_ppm": found.clock_rate_ppm,
        "version": found.version,
    }
