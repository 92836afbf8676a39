"""A network of its own for one member of a cluster, which can be cut off from the others and not from its clients."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING, Self

from tests.needs import run_as_root

if TYPE_CHECKING:
    from collections.abc import Iterator


class Island:
    """A network with one member on it: one cable for its clients, and one for the other members."""

    def __init__(self) -> None:
        number = os.getpid() % 200 + 20
        self.name = f"lessor-{os.getpid()}"
        self._cables = {f"ls{os.getpid()}c": f"10.231.{number}", f"ls{os.getpid()}p": f"10.232.{number}"}
        self.clients, self.peers = self._cables.values()
        self._peer_cable = list(self._cables)[1]
        self.inside = ("ip", "netns", "exec", self.name)
        """What runs a command there."""

    def __enter__(self) -> Self:
        run_as_root("ip", "netns", "add", self.name)
        run_as_root("ip", "-n", self.name, "link", "set", "lo", "up")  # where a server asks itself
        for cable, net in self._cables.items():
            run_as_root("ip", "link", "add", cable, "type", "veth", "peer", "name", f"{cable}i", "netns", self.name)
            run_as_root("ip", "addr", "add", f"{net}.1/24", "dev", cable)
            run_as_root("ip", "link", "set", cable, "up")
            run_as_root("ip", "-n", self.name, "addr", "add", f"{net}.2/24", "dev", f"{cable}i")
            run_as_root("ip", "-n", self.name, "link", "set", f"{cable}i", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for cable in self._cables:
            subprocess.run(["ip", "link", "del", cable], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """Pull the cable to the other members; clients still reach it."""
        run_as_root("ip", "link", "set", self._peer_cable, "down")
        try:
            yield
        finally:
            run_as_root("ip", "link", "set", self._peer_cable, "up")
