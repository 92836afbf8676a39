"""``etcdctl lock``: a process that holds the lock as long as it runs."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING, ClassVar

from bench.contestant import Blocking

if TYPE_CHECKING:
    from collections.abc import Callable


class Etcdctl(Blocking):
    name = "etcdctl lock"
    store = "etcd"
    remark = "a process for each lock"
    without: ClassVar = {
        "callers*": "a process for each caller",
        "holding*": "a process for each lease",
        "contention": "a process for each turn",
        "takeover": "its process goes on when ours is killed",
        "tries": "it can't try without waiting",
    }

    def acquire(self, resource: str) -> Callable[[], object]:
        endpoint = self.url.removeprefix("etcd://")
        command = ["etcdctl", "--endpoints", endpoint, "lock", "--ttl", f"{self.ttl:.0f}", resource]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "ETCDCTL_API": "3"})
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError("etcdctl ended")

        def release() -> None:
            process.send_signal(signal.SIGINT)
            process.communicate()

        return release
