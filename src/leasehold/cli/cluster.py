"""``leasehold cluster``: some nodes on this host, for trying it out; and how the nodes of any cluster are.

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
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from leasehold.cli.codes import NOTHING
from leasehold.cli.durations import shown
from leasehold.cli.screen import Cell, Screen
from leasehold.errors import ConfigError, LeaseholdError
from leasehold.stores.base import StoreURL

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from leasehold.stores.paxos.address import PaxosAddress, Place
    from leasehold.stores.paxos.frames import Status

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
        nodes = {}
        for name in names:
            nodes[name] = _launch(name, places, folder)
            stack.callback(_end, nodes[name])
        for node in nodes.values():
            stack.callback(node.send_signal, signal.SIGTERM)  # all at once; then each is waited for
        _await_start(url, nodes)
        screen.line(f"{len(nodes)} nodes run on this host: {screen.paint(url, 'cyan')}")
        screen.line(screen.paint(f"try:  leasehold run job --url {url} -- sleep 5", "dim"))
        screen.line(screen.paint(f"      leasehold cluster status --url {url}", "dim"))
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
    with tempfile.TemporaryDirectory(prefix="leasehold-cluster-") as folder:
        yield folder


def _launch(name: str, places: dict[str, str], folder: str) -> subprocess.Popen[bytes]:
    from leasehold.node.process import init  # noqa: PLC0415 - needs msgspec

    data = os.path.join(folder, name)
    peers = ",".join(f"{other}={place}" for other, place in places.items() if other != name)
    command = [
        sys.executable, "-m", "leasehold", "node", "--id", name, "--data", data,
        "--listen", places[name], "--peers", peers, "--log", "text",
    ]  # fmt: skip
    if not os.path.exists(os.path.join(data, "mark")):
        init(data, name)
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
        if all(found is not None for found, _ in ask_all(address)):
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
    """Show how each node is. Exit code 1: no majority of them serves."""
    url = args.url or os.environ.get("LEASEHOLD_URL")
    if not url:
        raise ConfigError("which cluster? Name it with --url or LEASEHOLD_URL")
    address = _address(url)
    found = list(zip(address.nodes, ask_all(address), strict=True))
    serving = sum(answer is not None and answer.state == "serving" for _, (answer, _) in found)
    screen = Screen()
    if args.json:
        screen.line(json.dumps([_as_json(place, *said) for place, said in found], indent=2, ensure_ascii=False))
    else:
        head = (
            "NODE", "AT", "STATE", "SILENT FOR", "LEASES", "WAITING", "FLOOR", "HIGH-WATER MARK", "CONNECTIONS", "UP",
            "CLOCKS",
        )  # fmt: skip
        screen.table(head, [_row(place, *said) for place, said in found])
    return 0 if serving > len(found) // 2 else NOTHING


def ask_all(address: PaxosAddress) -> list[tuple[Status | None, str]]:
    """Ask each node how it is; return what it says, or why it doesn't."""
    with ThreadPoolExecutor(len(address.nodes)) as pool:
        return list(pool.map(lambda place: _ask(address, place), address.nodes))


def _ask(address: PaxosAddress, place: Place) -> tuple[Status | None, str]:
    from leasehold.stores.paxos import frames  # noqa: PLC0415 - here and below: needs msgspec
    from leasehold.stores.paxos.link import ask, connect  # noqa: PLC0415

    try:
        link = connect(place, address.secret, address.context, PATIENCE)
        with contextlib.closing(link):
            answer = ask(link, frames.AskStatus(1), PATIENCE)
    except (OSError, LeaseholdError) as error:
        return None, str(error)
    return (answer, "") if isinstance(answer, frames.Status) else (None, "it gave no status")


def _address(url: str) -> PaxosAddress:
    if find_spec("msgspec") is None:
        raise ConfigError("paxos:// needs msgspec: pip install 'leasehold[paxos]'")
    from leasehold.stores.paxos.address import PaxosAddress  # noqa: PLC0415

    parsed = StoreURL.parse(url)
    if parsed.scheme not in ("paxos", "paxoss"):
        raise ConfigError(f"only paxos:// clusters have nodes to look at, and this is {parsed.scheme}://")
    return PaxosAddress(parsed)


def _row(place: Place, found: Status | None, why: str) -> list[Cell]:
    if found is None:
        return [Cell("?"), Cell(place), Cell("away", "red"), *[Cell("")] * 7, Cell(why, "dim")]
    styles = ("green",) if found.state == "serving" else ("yellow",)
    return [
        Cell(found.acceptor, "cyan"),
        Cell(place),
        Cell(found.state, *styles),
        Cell(shown(found.silence_left_ns / 1e9) if found.silence_left_ns else "", right=True),
        Cell(found.live, right=True),
        Cell(found.waiting, right=True),
        Cell(found.floor, "dim", right=True),
        Cell(found.high_water, "dim", right=True),
        Cell(found.connections, right=True),
        Cell(shown(found.up_ns / 1e9), right=True),
        Cell(f"{found.clock_rate_ppm:+.1f} ppm", right=True),
    ]


def _as_json(place: Place, found: Status | None, why: str) -> dict[str, object]:
    if found is None:
        return {"at": str(place), "state": "away", "error": why}
    return {
        "node": found.acceptor,
        "at": str(place),
        "state": found.state,
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
