"""What the pages say of each store's drift is what the store declares."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lessor import Client, ConfigError, Timing
from lessor.core.timing import shown_drift
from lessor.stores.registry import guarantees

DOCS = Path(__file__).parents[2] / "docs"
BY_HAND = sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "reference")
FACT = re.compile(r"<!-- fact: [^>]+ -->.*?<!-- /fact -->", re.DOTALL)
PERCENTAGE = re.compile(r"(?i)\bdrift[^.\n]*?[0-9.]+ ?%|[0-9.]+ ?%[^.\n]*?\bdrift")


@pytest.mark.parametrize("page", BY_HAND, ids=lambda page: str(page.relative_to(DOCS)))
def test_no_page_states_a_drift_but_by_its_store(page: Path) -> None:
    """`docs/generate.py` writes the numbers, from what the stores declare."""
    assert PERCENTAGE.findall(FACT.sub("", page.read_text())) == []


def test_the_page_about_ttls_lists_every_store() -> None:
    page = (DOCS / "how-to/choose-a-ttl.md").read_text()
    for store in guarantees():
        assert f"| `{store.store}` | {shown_drift(store.drift)} |" in page


def test_a_timing_that_allows_for_too_little_drift_is_told_what_the_store_declares() -> None:
    said = r"a clock drift of 0\.1 %, and memory declares 0\.5 %: make it with Timing\.of\(\.\.\., drift=0\.005\)"
    with Client("memory://drift") as leases, pytest.raises(ConfigError, match=said):
        leases.acquire("job", ttl=Timing.of(10, drift=0.001))
