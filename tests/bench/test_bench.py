from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_quick_run_prints_its_table_and_keeps_its_numbers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--only", "check", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    lines = done.stdout.splitlines()
    assert lines.index("Ratios") < lines.index("Absolutes")
    assert any(line.startswith("  lease.check()") and " ns" in line for line in lines)
    assert "check: 10 rounds done" in done.stderr
    (saved,) = tmp_path.glob("*.json")
    assert json.loads(saved.read_text())["works"]["check"]["numbers"]["check_ns"] > 0
