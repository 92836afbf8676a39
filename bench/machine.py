"""What the numbers depend on: the processor, who runs on which core, the load, the versions."""

from __future__ import annotations

import contextlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.contestant import Contestant

PINS = {
    "apart": "clients on one core, servers on another",
    "together": "clients and servers on the same core",
    "none": "none: the kernel chooses",
}


class Pinning:
    """Who runs where. Processes inherit it from the one that starts them, so ours moves before it starts them."""

    def __init__(self, how: str | None) -> None:
        self.cores = sorted(os.sched_getaffinity(0))
        self.how = how or ("apart" if len(self.cores) > 1 else "together")
        first, second = self.cores[0], self.cores[-1]
        self._clients = {first} if self.how != "none" else set(self.cores)
        self._servers = {second} if self.how == "apart" else self._clients

    @contextlib.contextmanager
    def for_servers(self) -> Iterator[None]:
        with _on(self._servers):
            yield

    @contextlib.contextmanager
    def for_clients(self) -> Iterator[None]:
        with _on(self._clients):
            yield


def describe(pinning: Pinning) -> dict[str, str]:
    return {
        "CPU": _cpu_model(),
        "cores": str(len(pinning.cores)),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GB",
        "system": platform.system(),
        "pinning": PINS[pinning.how],
        "load average at the start": load(),
    }


def load() -> str:
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def versions(contestants: Sequence[type[Contestant]]) -> dict[str, str]:
    """Return the versions of all that was measured."""
    found = {"Python": platform.python_version()}
    for package in sorted({package for kind in contestants for package in kind.packages}, key=str.lower):
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


@contextlib.contextmanager
def _on(cores: set[int]) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
