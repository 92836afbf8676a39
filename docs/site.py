"""Builds the documentation as a site: ``make site``. The pages are the ones in this folder and the README.

Links between pages stay links; a link to any other file of the project leads to a page that shows that file. The build
fails on a warning, on a link or an anchor that leads nowhere, and on anything that a page would load from elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
HOME = "README.md"
INDEX = "docs/index.md"
OTHERS = ("CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"(?P<before>\]\(|(?:src|srcset|href)=\")(?P<target>[^)\s\"]+)")
FENCE = re.compile(r"^(`{3,})\w*\n.*?^\1$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".sql": "sql", ".lua": "lua", ".service": "ini", ".toml": "toml", ".json": "json"}
OUTSIDE = ("http://", "https://", "mailto:", "data:")


def page_path(source: str) -> str:
    """Return where a file of the project stands among the site's pages."""
    if source == HOME:
        return "index.md"
    if source == INDEX:
        return "all-pages.md"
    if source.startswith("docs/"):
        return source.removeprefix("docs/")
    if source in OTHERS:
        return source.lower()
    return f"source/{source}.md"


class Pages:
    """The folder that the site is made of."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shown: set[str] = set()

    def write(self) -> None:
        """Write all pages, and copy what they show."""
        shutil.rmtree(self._folder, ignore_errors=True)
        pages = [HOME, *OTHERS, *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]
        for source in pages:
            self._put(page_path(source), self._rewritten(source))
        done: set[str] = set()
        while more := sorted(self._shown - done):  # a file that is shown may be a page with links of its own
            for source in more:
                self._put(page_path(source), self._rewritten(source) if source.endswith(".md") else shown(source))
            done |= set(more)

    def _rewritten(self, source: str) -> str:
        text = (ROOT / source).read_text(encoding="utf-8")
        parts, at = [], 0
        for fence in FENCE.finditer(text):  # code is left as it is
            parts += [self._with_links(text[at : fence.start()], source), fence.group()]
            at = fence.end()
        return "".join([*parts, self._with_links(text[at:], source)])

    def _with_links(self, text: str, source: str) -> str:
        def moved(match: re.Match[str]) -> str:
            target = match["target"]
            if target.startswith((*OUTSIDE, "#")):
                return match.group()
            path, hash_, anchor = target.partition("#")
            wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
            if (ROOT / wanted).is_dir():
                wanted = posixpath.join(wanted, "README.md")
            here, there = page_path(source), self._place(wanted)
            return match["before"] + posixpath.relpath(there, posixpath.dirname(here) or ".") + hash_ + anchor

        return LINK.sub(moved, text)

    def _place(self, wanted: str) -> str:
        if wanted.endswith((".svg", ".png", ".json")):
            there = wanted.removeprefix("docs/")
            self._copy(wanted, there)
            return there
        there = page_path(wanted)
        if there.startswith("source/"):
            self._shown.add(wanted)
        return there

    def _put(self, place: str, text: str) -> None:
        path = self._folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _copy(self, source: str, place: str) -> None:
        path = self._folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / source, path)


def shown(source: str) -> str:
    """Return a page that shows a file of the project."""
    text = (ROOT / source).read_text(encoding="utf-8")
    return f"# {source}\n\n````{LANGUAGES.get(Path(source).suffix, 'text')}\n{text}````\n"


def navigation() -> list[object]:
    """Return the menu: the sections and pages of the index, in its order."""
    menu: list[object] = [{"Home": "index.md"}]
    section: list[object] = []
    for line in (ROOT / INDEX).read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = []
            menu.append({line.removeprefix("## "): section})
        elif (match := re.match(r"\s*- \[(?P<title>.+?)\]\((?P<path>[^)#]+)\)", line)) is not None:
            section.append({match["title"].replace("`", ""): match["path"]})
    menu.append({"Project": [{"Contributing": "contributing.md"}, {"Changes": "changelog.md"}]})
    return menu


def configuration() -> str:
    """Return the settings, as JSON, which YAML includes, but for the one that names a function."""
    palette = [
        {"media": f"(prefers-color-scheme: {scheme})", "scheme": name, "primary": "custom", "accent": "teal",
         "toggle": {"icon": icon, "name": f"Switch to the {other} theme"}}
        for scheme, name, icon, other in (
            ("light", "default", "material/weather-night", "dark"),
            ("dark", "slate", "material/weather-sunny", "light"),
        )
    ]  # fmt: skip
    settings = {
        "site_name": "lessor",
        "site_description": "Leases for Python: one owner at a time, for a limited time, with proof",
        "docs_dir": "docs",
        "site_dir": "site",
        "use_directory_urls": False,
        "nav": navigation(),
        "theme": {
            "name": "material",
            "font": False,
            "palette": palette,
            "features": ["navigation.tabs", "navigation.top", "content.code.copy", "search.highlight", "toc.follow"],
        },
        "extra_css": ["site.css"],
        "extra": {"generator": False},
    }
    extensions = """
markdown_extensions:
  - toc:
      permalink: true
      slugify: !!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}
  - admonition
  - tables
  - attr_list
  - md_in_html
  - pymdownx.superfences
  - pymdownx.highlight: {anchor_linenums: true}
"""
    return "".join(f"{json.dumps(key)}: {json.dumps(value)}\n" for key, value in settings.items()) + extensions


class Links(HTMLParser):
    """What one page of the finished site links to, loads, and can be linked at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the links of one tag."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loads.append(values["href"])
        elif tag in ("img", "script", "iframe", "source"):
            self.loads += [values[name] for name in ("src", "srcset") if values.get(name)]


def problems(site: Path) -> list[str]:
    """Return each link that leads nowhere, and each thing that would be loaded from outside."""
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name} loads {one}" for one in page.loads if one.startswith(("http:", "https:", "//"))]
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith("data:"):
                continue
            target = path if not parts.path else Path(os.path.normpath(path.parent / unquote(parts.path)))
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                found.append(f"{name} links to {link}, which isn't there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name} links to {link}, and there is no such anchor")
    return found


def main() -> int:
    """Build the site and check it; 0 if all is well."""
    parser = argparse.ArgumentParser(description="Builds the documentation as a site.")
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="the folder that gets the site (default: site)")
    site = parser.parse_args().out.resolve()
    work = site.with_name(site.name + ".pages")
    pages = work / "docs"
    try:
        Pages(pages).write()
        shutil.copyfile(ROOT / "docs/site.css", pages / "site.css")
        settings = work / "mkdocs.yml"
        settings.write_text(configuration(), encoding="utf-8")
        builder = Path(sys.executable).with_name("zensical")
        built = subprocess.run([builder, "build", "--strict", "--clean", "-f", settings], cwd=work, check=False)  # noqa: S603
        if built.returncode:
            return built.returncode
        shutil.rmtree(site, ignore_errors=True)
        shutil.move(work / "site", site)
        found = problems(site)
        for problem in found:
            sys.stderr.write(f"{problem}\n")
        count = len(list(site.rglob("*.html")))
        sys.stderr.write(f"{count} pages in {os.path.relpath(site)}, {len(found) or 'no'} problems\n")
        return 1 if found else 0
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
