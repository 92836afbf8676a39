"""A process that unshares its time namespace after it has used the clock: its children are in the new one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.needs import run_as_root

PROGRAM = """
import ctypes, json, os, sys
from lessor import Client
from lessor.runtime.clock import SYSTEM

url, shift = sys.argv[1:]
parent = Client(url)
lease = parent.acquire("job", ttl=300)
before = [SYSTEM.now(), SYSTEM.host_ns()]

CLONE_NEWTIME = 0x80
if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWTIME) != 0:
    raise OSError(ctypes.get_errno(), "unshare")
with open("/proc/self/timens_offsets", "w") as file:
    file.write(f"boottime {shift} 0\\nmonotonic {shift} 0\\n")

if os.fork() == 0:
    after = [SYSTEM.now(), SYSTEM.host_ns()]
    with Client(url) as child:
        taken = child.try_acquire("job", ttl=300) is not None
        with child.acquire("own", ttl=300) as own:
            own.check()
    print(json.dumps({"before": before, "after": after, "taken": taken}), flush=True)
    os._exit(0)
os.wait()
lease.check()
lease.release()
"""


@pytest.mark.parametrize("shift", ["1000000", "-50"])
def test_a_child_in_a_new_time_namespace_goes_by_the_hosts_clock(sqlite_url: str, shift: str) -> None:
    run_as_root("unshare", "--time", "--boottime", shift, "--monotonic", shift, "true")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, sqlite_url, shift], capture_output=True, text=True, check=True, timeout=60
    )
    told = json.loads(done.stdout)
    assert not told["taken"], "the parent's lease was taken for one that is over"
    for before, after in zip(told["before"], told["after"], strict=True):
        assert 0 <= after - before < 40e9, "the clock was set by the shift"
