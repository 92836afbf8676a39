"""Reads the project's Markdown: its code blocks, what the comments before them say, and its links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
RUN = [ROOT / "README.md", ROOT / "docs/tutorial.md", *sorted((ROOT / "docs/how-to").glob("*.md"))]
"""Pages whose examples are carried out."""
ALL = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "changes").glob("*.md"))]

_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>\w*)\n(?P<code>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- (?P<what>not run|file|run)(?:: (?P<text>[^\n]*?))? -->\n+$")
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_INLINE_CODE = re.compile(r"`[^`\n]+`")


class Block(NamedTuple):
    """A piece of code in a page."""

    language: str
    code: str
    line: int
    """Where its first line stands in the page."""
    what: str
    """``file``, ``run`` or ``not run``, as the comment before it says; else nothing."""
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        comment = _COMMENT.search(text, 0, match.start())
        what, said = (comment["what"], comment["text"] or "") if comment else ("", "")
        line = text.count("\n", 0, match.start("code")) + 1
        found.append(Block(match["language"], match["code"], line, what, said))
    return found


def prose(page: Path) -> str:
    """The page without its code."""
    return _INLINE_CODE.sub("", _FENCE.sub("", page.read_text(encoding="utf-8")))


def links(page: Path) -> list[str]:
    return [match["target"] for match in _LINK.finditer(prose(page))]


def anchors(page: Path) -> set[str]:
    """What a ``#fragment`` may name in the page: its headings, as they are turned into anchors."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def program(page: Path) -> str:
    """All Python blocks that run, as one program whose lines have the numbers that they have in the page."""
    lines: list[str] = []
    for block in blocks(page):
        if block.language == "python" and not block.what:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.code.splitlines()
    return "\n".join(lines) + "\n"
