"""Hosts, as far as a scheduler is concerned: each runs a real cron or systemd that sees no other's files.

A mount namespace for each, so that nothing of this machine's own cron and systemd is touched.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.needs import not_here

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CRON = """\
mount -t tmpfs tmpfs /run
mount --bind {folder}/crontabs /var/spool/cron/crontabs
mount --bind {folder}/none /etc/cron.d
mount --bind {folder}/nothing /etc/crontab
exec cron -f
"""
SYSTEMD = """\
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/user /run/own
chmod 700 /run/user
groups=/sys/fs/cgroup/systemd
test -d $groups || groups=/sys/fs/cgroup
own=$groups/lessor-test-$$
mkdir $own
mount --bind $own /run/own
echo $$ >$own/cgroup.procs
if [ $groups = /sys/fs/cgroup/systemd ]; then
    mount -t tmpfs tmpfs /sys/fs/cgroup
    mkdir $groups
fi
mount --bind /run/own $groups
export XDG_RUNTIME_DIR=/run/user XDG_CONFIG_HOME={folder}
exec unshare --cgroup /usr/lib/systemd/systemd --user --unit=report.timer
"""
"""In a control group that is the only one it can see: it takes all that runs in those of its units for its own."""


class Host:
    """One of several, with a folder for what it runs."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self._store = folder, store
        folder.mkdir()
        self._script(
            "lessor",
            f'echo >>{folder}/calls; exec {shlex.quote(sys.executable)} -m lessor "$@" 2>>{folder}/errors',
        )
        self._script("report", f"echo {folder.name} >>{folder.parent}/reports")

    def _script(self, name: str, code: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{code}\n")
        path.chmod(0o755)

    @property
    def calls(self) -> int:
        """How often its scheduler has started lessor."""
        path = self.folder / "calls"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def fitted(self, text: str) -> str:
        """Return a file of the how-to as this host needs it: its programs, its store."""
        return text.replace("/usr/local/bin/", f"{self.folder}/").replace("redis://leases.internal", self._store)

    @contextlib.contextmanager
    def cron(self, crontab: str) -> Iterator[None]:
        for name in ("crontabs", "none"):
            (self.folder / name).mkdir()
        (self.folder / "nothing").touch()
        own = self.folder / "crontabs" / "root"
        own.write_text(self.fitted(crontab))
        own.chmod(0o600)
        with self._namespace("cron", CRON):
            yield

    @contextlib.contextmanager
    def systemd(self, units: dict[str, str]) -> Iterator[None]:
        folder = self.folder / "systemd" / "user"
        folder.mkdir(parents=True)
        for name, text in units.items():
            (folder / name).write_text(self.fitted(text))
        with self._namespace("systemd", SYSTEMD):
            yield

    @contextlib.contextmanager
    def _namespace(self, program: str, script: str) -> Iterator[None]:
        if os.getuid() != 0 or not (shutil.which(program) or shutil.which(program, path="/usr/sbin")):
            not_here(f"{program} in a mount namespace: needs root, and {program}")
        command = ["unshare", "--mount", "sh", "-eu", "-c", script.format(folder=shlex.quote(str(self.folder)))]
        path = os.environ["PATH"] + ":/usr/sbin"
        process = subprocess.Popen(command, env={**os.environ, "PATH": path}, stdout=subprocess.DEVNULL)
        try:
            yield
            assert process.poll() is None, f"{program} ended with {process.returncode}"
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:  # systemd waits for what it has started, for as long as its default says
                process.kill()
                process.wait(30)
            _leave_no_groups(process.pid)


def _leave_no_groups(pid: int) -> None:
    for top in glob.glob(f"/sys/fs/cgroup/**/lessor-test-{pid}"):
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):  # something in it has yet to end
                os.rmdir(folder)
