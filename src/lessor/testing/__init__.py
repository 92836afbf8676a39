"""For tests: what it means to be a store, as a suite that anybody can run on their own, and the doubles it is made with.

A store's author writes a `Harness` and one line, and lets pytest find it::

    from lessor.testing import Harness, StoreConformance

    class MyHarness(Harness):
        def url(self) -> str: ...

    class TestMyStore(StoreConformance):
        harness = MyHarness

Needs pytest: ``pip install 'lessor[testing]'``. Nothing here is imported by the rest of the library.
"""

from lessor.testing.clock import FakeClock
from lessor.testing.conformance import PatternCases, StoreCases, StoreConformance
from lessor.testing.faults import FaultyStore
from lessor.testing.harness import Harness

__all__ = ["FakeClock", "FaultyStore", "Harness", "PatternCases", "StoreCases", "StoreConformance"]
