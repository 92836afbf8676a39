"""A session with 10,000 leases: one renewal keeps them, and all are free when it ends."""

from __future__ import annotations

import random
import time

import pytest

from leasehold import Client
from leasehold.testing.conformance.base import until
from tests.patterns.processes import end, hear, hold_session, report, start, tell

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]

CHILDREN = 10_000
TTL = 6.0
LATE = 0.2
SAMPLE = 100


@pytest.mark.parametrize("url", ["sqlite", "redis", "paxos"], indirect=True)
def test_ten_thousand_leases_of_a_killed_holder(url: str) -> None:
    names = [f"part/{number}" for number in range(CHILDREN)]
    process = start(hold_session.__name__, url, CHILDREN, TTL)
    try:
        with Client(url) as client:
            begun = hear(process)
            session = begun["session"]
            assert begun["calls"] <= 1 + CHILDREN / 1000 + 2 * begun["seconds"] / TTL * 3
            before = client.get(session)
            assert before is not None
            began = time.monotonic()
            time.sleep(TTL)
            tell(process, "calls?")
            later = hear(process)
            after = client.get(session)
            assert after is not None
            periods = (time.monotonic() - began) / (TTL / 3)
            assert later["held"] == CHILDREN
            renewals = after.renewals - before.renewals
            assert 1 <= renewals <= periods * 1.25 + 1
            assert later["calls"] - begun["calls"] <= periods * 1.25 + 2, "something besides the renewal was sent"
            some = client.get_each(names[::1000])
            assert all(record is not None and record.renewals == 0 for record in some)

            process.kill()
            process.wait()
            asked = time.monotonic()
            record = client.get(session)
            assert record is not None
            expiry = time.monotonic() + record.remaining
            assert client.try_acquire(random.choice(names), ttl=60) is None
            wanted = random.sample(names, SAMPLE)
            client.acquire("part/0", ttl=60, wait=2 * TTL)
            got = client.try_each([name for name in wanted if name != "part/0"], ttl=60)
            late = time.monotonic() - expiry
            assert time.monotonic() > asked + record.remaining, "somebody was let in before the session had ended"
            assert len(got) >= SAMPLE - 1
            assert late < LATE + 0.3  # a hundred were acquired in it, on whatever machine this is
            taken = {"part/0", *got}
            until(lambda: {r.resource for r in client.list("part/")} == taken, "the end of all others")
            report(url, f"taken in {begun['seconds']:.2f} s, {begun['calls']} calls; "
                        f"{renewals} renewals, {later['calls'] - begun['calls']} calls in {periods:.1f} periods; "
                        f"{SAMPLE} of them acquired {late * 1000:.0f} ms after the expiry")  # fmt: skip
    finally:
        end(process)
