"""Runs the main job as on a platform without Linux's own calls: ``python -m tests.runtime.elsewhere URL``.

All that Python offers on Linux alone is taken away before lessor is imported, and nothing in ``/proc`` or ``/sys`` can
be opened.
"""

from __future__ import annotations

import asyncio
import asyncio.unix_events
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

ONLY_ON_LINUX = {
    time: ["CLOCK_BOOTTIME", "CLOCK_TAI"],
    os: ["eventfd", "pidfd_open", "memfd_create", "sched_getaffinity", "O_TMPFILE", "splice", "copy_file_range"],
    signal: ["pidfd_send_signal", "sigtimedwait", "sigwaitinfo"],
    select: ["epoll"],
    socket: ["SO_PEERCRED", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "MSG_NOSIGNAL"],
}


def hide() -> None:
    loaded = (asyncio, asyncio.unix_events, subprocess, threading)  # Python's own modules have found what they need
    assert all(loaded)
    for module, names in ONLY_ON_LINUX.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "darwin"

    def refuse(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(("/proc", "/sys")):
            raise FileNotFoundError(arguments[0])

    sys.addaudithook(refuse)


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def main(url: str) -> None:
    from lessor import AsyncClient, Client, ConfigError, LeaseHeld, LeaseLost

    try:
        leases = Client(url)
    except ConfigError as error:
        say("refused:", error)
        return
    with leases, Client(url, holder="other") if "memory" not in url else leases as other:
        with leases.acquire("job", ttl=30) as lease:
            lease.check()
            lease.renew()
            try:
                other.acquire("job", ttl=30, wait=0.01)
            except LeaseHeld as held:
                say("held by", held.holder)
        early = leases.acquire("soon", ttl=30)
        leases.revoke("soon", force=True)
        try:
            early.renew()
        except LeaseLost as lost:
            say("lost:", lost.reason)
        assert other.acquire("soon", ttl=30).token > early.token

    async def on_a_loop() -> None:
        async with AsyncClient(url) as client, client.acquire("job", ttl=30) as lease:
            lease.check()

    asyncio.run(on_a_loop())
    say("done")


if __name__ == "__main__":
    for library in ("psycopg", "redis"):  # a client library looks for its own files by the platform's name
        importlib.import_module(library)
    hide()
    main(sys.argv[1])
