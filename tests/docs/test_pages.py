"""The examples work, the links lead somewhere, and no page knows the machine that it was written on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.docs.markdown_pages import ALL, ROOT, RUN, anchors, blocks, links, program

if TYPE_CHECKING:
    from pathlib import Path

MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|tmp|Users|home/\w+)\b")


TWICE = [ROOT / "README.md", ROOT / "docs/tutorial.md"]
"""Pages that a reader may carry out again in the same folder."""


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def carry_out(command: list[str], folder: Path) -> None:
    environment = {
        "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
        "HOME": str(folder),
        "LESSOR_URL": f"sqlite:///{folder}/leases.db",
        "XDG_STATE_HOME": str(folder),
        "LANG": "C.UTF-8",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


@pytest.mark.parametrize("page", RUN, ids=name)
def test_the_examples_work(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.what == "file":
            path = tmp_path / block.text
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code)
    code = program(page)
    script = tmp_path / f"{page.stem.replace('-', '_')}_page.py"
    script.write_text(code)
    for _ in range(2 if page in TWICE else 1):
        if code.strip():
            carry_out([sys.executable, str(script)], tmp_path)
        for block in blocks(page):
            if block.what == "run":
                carry_out(["sh", "-eu", "-c", block.code], tmp_path)


@pytest.mark.parametrize("page", ALL, ids=name)
def test_blocks_that_do_not_run_say_why(page: Path) -> None:
    for block in blocks(page):
        if block.what == "not run":
            assert block.text, f"line {block.line}: no reason given"


@pytest.mark.parametrize("page", ALL, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if fragment:
            assert fragment in anchors(target), link


@pytest.mark.parametrize("page", ALL, ids=name)
def test_no_machine_paths(page: Path) -> None:
    assert MACHINE_PATH.findall(page.read_text(encoding="utf-8")) == []


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs/index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    pages = {page for page in (ROOT / "docs").rglob("*.md") if page != index}
    assert pages - linked == set()


def test_the_two_commands_are_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text
