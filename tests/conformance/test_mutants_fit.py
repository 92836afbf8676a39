"""What the mutants change is there, once: told soon, and not by the long run."""

from __future__ import annotations

import pytest

from tests.conformance.test_mutants import MUTANTS, ROOT


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_fits_the_code(name: str) -> None:
    path, right, _, _ = MUTANTS[name]
    assert (ROOT / "src/lessor" / path).read_text().count(right) == 1, "the mutant no longer fits the code: mend it"
