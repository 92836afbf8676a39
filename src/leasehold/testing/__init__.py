"""For tests: what it means to be a store, as a suite that anybody can run on their own, and the doubles it is made with.

A store's author writes a `Harness` and one line, and lets pytest find it::

    from leasehold.testing import Harness, StoreConformance

    class MyHarness(Harness):
        def url(self) -> str: ...

    class TestMyStore(StoreConformance):
        harness = MyHarness

Needs pytest: ``pip install 'leasehold[testing]'``. Nothing here is imported by the rest of the library.
"""

from leasehold.testing.clock import FakeClock
from leasehold.testing.conformance import StoreConformance
from leasehold.testing.faults import FaultyStore
from leasehold.testing.harness import Harness

__all__ = ["FakeClock", "FaultyStore", "Harness", "StoreConformance"]
