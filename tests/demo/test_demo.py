from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-m", "lessor", "demo"]


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [*COMMAND, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def processes_in(folder: Path) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                command = file.read().replace("\0", " ")
        except OSError:
            continue
        if str(folder) in command:
            found.append(command)
    return found


def test_the_demo_in_a_pipe_tells_its_story_and_its_invariants_hold(tmp_path: Path) -> None:
    drawings = tmp_path.with_name("drawings")
    drawings.mkdir()
    process = start(tmp_path, "--draw", str(drawings / "run.svg"))
    text, _ = process.communicate(timeout=90)
    assert process.returncode == 0, text
    assert "All invariants held." in text
    for part in ("is killed with SIGKILL", "is stopped with SIGSTOP", "refused", "check() raises LeaseLost: expired"):
        assert part in text
    assert "FAIL" not in text
    assert "\033" not in text  # plain lines in a pipe
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    assert sorted(path.name for path in drawings.iterdir()) == ["run-dark.svg", "run-light.svg"]
    for path in drawings.iterdir():
        drawn = ET.parse(path).getroot()
        words = " ".join(text.text or "" for text in drawn.iter("{http://www.w3.org/2000/svg}text"))
        assert "took over" in words
        assert "stale writes: 1 tried, 1 refused by the token" in words


def test_ctrl_c_ends_the_demo_and_all_its_processes(tmp_path: Path) -> None:
    process = start(tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "holds #2" in line:
            break
    assert len(processes_in(tmp_path)) == 3
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT, text
    assert "Traceback" not in text
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
