"""The suite must fail on stores and holders that are wrong in the ways that matter; a suite that can't fail shows nothing.

``make test`` tries some of the mutants, ``make proof`` all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scale import SCALE

pytestmark = pytest.mark.heavy


ROOT = Path(__file__).parents[2]

MUTANTS = {
    "deadline of a grant counted from the reply": (
        "core/claim.py",
        "deadline = sent_ns + self.timing.safe_time(outcome.ttl_ns)",
        "deadline = now + self.timing.safe_time(outcome.ttl_ns)",
        "deadline_counts or slower_than or outlives",
    ),
    "deadline of a renewal counted from the reply": (
        "runtime/tenure.py",
        "deadline = sent_ns + self._timing.safe_time(outcome.ttl_ns)",
        "deadline = now + self._timing.safe_time(outcome.ttl_ns)",
        "deadline_counts or outlives",
    ),
    "deadline of renewals of many counted from the reply": (
        "runtime/keeper.py",
        "belief = machine.granted(sent + timing.safe_time(ttl_ns))",
        "belief = machine.granted(now + timing.safe_time(ttl_ns))",
        "deadline_counts or outlives",
    ),
    "drained without waiting for the work": (
        "patterns/drain.py",
        "    if not empty.wait(seconds):",
        "    if not empty.wait(0) and False:",
        "last_work",
    ),
    "drained while more work is taken": (
        "patterns/drain.py",
        "            self._closed = True",
        "            self._closed = False",
        "last_work",
    ),
    "freed by the end of a with, under work in flight": (
        "client/lease.py",
        "at_work = not raising and self._is_at_work()",
        "at_work = False",
        "under_work",
    ),
    "drained without the work of those below": (
        "patterns/drain.py",
        "            above = above.parent",
        "            above = None",
        "stand_under_it or drained_with",
    ),
    "a second with that frees what the first is in": (
        "runtime/visits.py",
        "            if self._own_visit is not None:",
        "            if False:",
        "second_with",
    ),
    "a closed resource that is shown as free": (
        "core/rules.py",
        "    return entry.record(now, free_at, closed_by(entry)) if now < free_at else None",
        "    return None",
        "shown_as_closed",
    ),
    "a lock delay that a plain revocation ends": (
        "core/rules.py",
        "    if closed is Closed.LOCK_DELAY and not op.force:",
        "    if False:",
        "only_force_opens",
    ),
    "a minimum hold that no revocation ends": (
        "core/rules.py",
        "    if closed is Closed.LOCK_DELAY and not op.force:",
        "    if not op.force:",
        "opens_what_is_closed_after_a_release",
    ),
    "a closed resource that has a leader": (
        "patterns/election.py",
        "None if record is None or record.closed else",
        "None if record is None else",
        "say_that_it_is_closed",
    ),
    "a closed client that stays in the queue": (
        "runtime/engine.py",
        "                    place.leave()",
        "                    pass",
        "leaves_the_queues",
    ),
    "a campaign that is elected after it was stopped": (
        "patterns/election.py",
        "        if not self._stop.cancelled:",
        "        if True:",
        "campaign_is_stopped",
    ),
    "a candidate again after a drain": (
        "patterns/election.py",
        "        if term is not None and term.lease._is_drained():",
        "        if False:",
        "drained_term_is_the_last",
    ),
    "an event loop that waits for the connection": (
        "client/aio.py",
        "            await self._connecting.run()",
        "            self._connect()",
        "connected_to",
    ),
    "a handover that is repeated as a release": (
        "runtime/tenure.py",
        "return self._unanswered or Release(",
        "return Release(",
        "however_it_is_repeated",
    ),
    "a lost term that ends the campaign": (
        "patterns/campaign.py",
        "        return self._is_own(exc)",
        "        return False",
        "loss_ends",
    ),
    "renewal without owner check": (
        "core/rules.py",
        "    if entry.lease_id != op.lease_id:\n        if entry.token == op.token",
        "    if entry.lease_id is None:\n        if entry.token == op.token",
        "only_by_the_owner or whole_turn",
    ),
    "renewal after expiry": (
        "core/rules.py",
        "    if now >= expiry and not in_grace(entry, expiry, now):",
        "    if False:",
        "after_expiry",
    ),
    "token reset when the record is collected": (
        "stores/memory.py",
        "            self.floor = max(self.floor, entry.token)\n",
        "",
        "Tokens or over_",
    ),
    "token reset when the record is collected, SQLite": (
        "stores/sqlite/table.py",
        'self.db.execute("UPDATE meta SET floor = max(floor, ?)", (self.floor,))',
        "pass",
        "over_",
    ),
    "token by the wall clock alone": (
        "core/rules.py",
        "    token = max(token, table.wall_us)",
        "    token = table.wall_us",
        "over_ or above_",
    ),
    "body of a thread entered without the lease": (
        "client/sync.py",
        "            if isinstance(decision, GiveUp):\n                engine.require_open()\n                raise decision.error",
        (
            "            if isinstance(decision, GiveUp):\n"
            "                return Lease(engine, claim.op, terms.timing, Take(0, sent + 10**10), sent, None)"
        ),
        "never_entered",
    ),
    "body of a task entered without the lease": (
        "client/aio.py",
        "        except LeaseHeld:\n            return None",
        "        except ZeroDivisionError:\n            return None",
        "refused_with_who",
    ),
    "barging": (
        "core/rules.py",
        "    if reservation is not None and not queue.is_for(reservation, op):",
        "    if False:",
        "barges or order_of_arrival",
    ),
    "a lower priority served first": (
        "core/queue.py",
        "    while position and places[position - 1].priority < priority:",
        "    while position and places[position - 1].priority > priority:",
        "priority",
    ),
    "a queue one longer than it may be": (
        "core/queue.py",
        "refused = 0 < op.queue_limit <= len(places)",
        "refused = 0 < op.queue_limit < len(places)",
        "full_queue or bound_is_kept",
    ),
    "what was left for a successor given to whoever comes": (
        "core/queue.py",
        "        start = now\n",
        "        return Reservation(now + 1, showing, state=reservation.state)\n",
        "gone_with_the_reservation or never_comes",
    ),
    "a lease within its soft limit ended by a challenger": (
        "core/rules.py",
        "    if op.recover and 0 < entry.soft_ns <= now - entry.granted_ns and not entry.revoked:",
        "    if op.recover and not entry.revoked:",
        "soft_limit",
    ),
    "a revoked grandchild counted in its parent alone": (
        "core/rules.py",
        "        below = above\n",
        "        return\n",
        "counted_in_all",
    ),
    "a child that outlives its parent here": (
        "runtime/under.py",
        "        return min(self._own_deadline_ns, self._parent._deadline_ns)",
        "        return self._own_deadline_ns",
        "after_the_grace_of_a_parent or sublease_renews",
    ),
    "children extended although one of them was ended": (
        "runtime/keeper.py",
        "        if tenure._doubts(outcome, now):",
        "        if False:",
        "somebody_ends or unknown_which or after_the_grace",
    ),
    "a holder that is not stopped at its deadline": (
        "core/holder.py",
        "    if now >= holder.deadline_ns:",
        "    if now >= holder.over_ns:",
        "within_its_grace",
    ),
    "no tombstone for an abandoned acquire": (
        "core/rules.py",
        "        entry.waiting.bury(op.lease_id, now + TOMBSTONE_NS)\n",
        "",
        "abandoned_id",
    ),
    "release without owner check": (
        "core/rules.py",
        "    if entry.lease_id == op.lease_id and now < expiry:\n        free_at",
        "    if entry.lease_id is not None and now < expiry:\n        free_at",
        "old_release or mixed_operations",
    ),
    "acquire that is not idempotent": (
        "core/rules.py",
        "            if entry.lease_id == op.lease_id:\n                return Granted(entry.token, expiry - now, entry.state)\n",
        "",
        "that_is_repeated or own_grant",
    ),
    "an async body that is not cancelled": (
        "client/body.py",
        "            self._task.cancel()",
        "            pass",
        "body_is_cancelled",
    ),
    "the loss of a thread's lease swallowed": (
        "client/lease.py",
        "        if exc_type is None and loss is not None and loss is not Loss.RELEASED:",
        "        if False:",
        "lost_lease_comes_out",
    ),
    "a cancelled waiter that stays in the queue": (
        "client/terms.py",
        "    if unsure or claim.queued:",
        "    if False:",
        "leaves_the_queue or hangs or silent",
    ),
    "a request without an answer that is forgotten once a copy has one": (
        "core/claim.py",
        "        self.astray = True",
        "        pass",
        "a_copy_of_a_request",
    ),
    "a release that is sent until the TTL is over": (
        "runtime/keeper.py",
        "if isinstance(outcome, Unknown) and pause is not None:",
        "if isinstance(outcome, Unknown) and pause is not None and now < disposal.until_ns:",
        "until_it_is_answered",
    ),
    "the parent's leases kept by a forked child": (
        "runtime/engine.py",
        "            tenure._fork()",
        "            pass",
        "forked",
    ),
    "several that keep what comes after the one they wait for": (
        "patterns/several.py",
        "        beyond = [name for name in self._names if name > first and name in self.held]",
        "        beyond: list[str] = []",
        "keeps_nothing_beyond",
    ),
    "some of several kept when one can't be had": (
        "patterns/several.py",
        "    except BaseException:\n        client.release_each(order.held.values())",
        "    except BaseException:\n        pass",
        "none_is_kept",
    ),
    "a semaphore without a gate": (
        "patterns/semaphore.py",
        "turn: L = self._client.acquire(self._slots.gate, ttl",
        'turn: L = self._client.acquire(f"{self._slots.gate}/{random.random()}", ttl',
        "bound_of_the_queue",
    ),
    "a waiter for any slot that stays in the queues of the others": (
        "patterns/semaphore.py",
        """            lease = client.wait_any(places, patience.left())
            return lease
        finally:
            for place in places:
                place.leave()
""",
        """            lease = client.wait_any(places, patience.left())
            return lease
        finally:
            for place in places:
""",
        "whichever_slot",
    ),
    "an inner exit that gives the lease back": (
        "runtime/visits.py",
        "            return self._owner_left and (self._visits == (visit,) or all(one.left for one in self._visits))",
        "            return True",
        "outermost or last_one",
    ),
    "a thread that waits no more, and keeps the store's calls from others": (
        "runtime/waiters.py",
        "        if not called and self._listener is not None:",
        "        if False:",
        "keeps_no_call",
    ),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(MUTANTS)[:: max(1, round(0.14 / SCALE))])
def test_the_suite_catches(name: str, tmp_path: Path) -> None:
    path, right, wrong, cases = MUTANTS[name]
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source)  # with what is compiled: its times are kept
    mutated = source / "lessor" / path
    text = mutated.read_text()
    assert text.count(right) == 1, "the mutant no longer fits the code: mend it"
    mutated.write_text(text.replace(right, wrong))
    waiting = source / "lessor/testing/conformance/base.py"
    waiting.write_text(waiting.read_text().replace("PATIENCE = 60.0", "PATIENCE = 12.0"))  # many are caught by it
    suites = [str(ROOT / "tests/conformance/test_memory.py"), str(ROOT / "tests/conformance/test_sqlite.py")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "--time-limit=60",
        "--assert=plain",  # to explain how two long stories differ would take longer than to tell them
        "-k",
        cases,
        *suites,
    ]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert run.returncode == 1, f"not caught:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
    assert "1 failed" in run.stdout
