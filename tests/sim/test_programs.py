"""Users' programs in a simulated world: what it finds, and that its asyncio is asyncio."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from lessor import ConfigError, LeaseHeld, LeaseLost, sim
from lessor.core.clock import SECOND
from lessor.sim import Mishap, Trouble
from tests.sim.programs import careful, election, forgetful, guild, three

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lessor.sim import ProgramWorld, Register, SimProcess

ONLY_PAUSES = sim.NONE._replace(pauses=3)
ROUGH = sim.Faults(pauses=8, kills=2, outages=1, cuts=4)
STORY = """
import hashlib, sys
from lessor import sim
from tests.sim.programs import careful, three
text = "".join(sim.run(three(careful), seed=seed, seconds=60).story() for seed in (1, 2))
sys.stdout.write(hashlib.sha256(text.encode()).hexdigest())
"""


def alone(main: Callable[[SimProcess], Awaitable[None]], **settings: object) -> sim.Run:
    """Run one process in a world in which nothing goes wrong, unless the settings say so."""

    def program(world: ProgramWorld) -> None:
        world.process("p", main)

    return sim.run(program, **{"faults": sim.NONE, **settings})  # type: ignore[arg-type]


def strike(seconds: float, trouble: Trouble, who: str, lasts: float, *, aimed: bool = False) -> Mishap:
    return Mishap(int(seconds * SECOND), trouble, who, int(lasts * SECOND), aimed)


# --- what it finds ------------------------------------------------------------------------------------------------


def test_a_runner_that_forgets_to_check_is_found_and_its_story_told() -> None:
    explored = sim.explore(three(forgetful), seeds=range(20), faults=ONLY_PAUSES, most=1)
    (failure,) = explored.failures
    assert failure.violation is not None
    assert failure.violation.invariant == "stale write"
    assert len(failure.mishaps) == 1, "one pause is all that it takes"
    story = failure.story()
    row = next(line for line in story.splitlines() if line.startswith(failure.mishaps[0].who))
    assert "=" in row
    assert row.endswith("!")
    assert "pause, for" in story
    titles = [title.text or "" for title in ET.fromstring(failure.svg()).iter("{http://www.w3.org/2000/svg}title")]
    assert any("stale write" in title for title in titles)


def test_a_runner_that_only_checks_is_found_when_it_is_stopped_between_check_and_write() -> None:
    pause = strike(1.5, Trouble.PAUSE, "worker-0", 30, aimed=True)

    async def lonely(process: SimProcess, ledger: Register) -> None:
        if process.name != "worker-0":
            await asyncio.sleep(1)
        await careful(process, ledger)

    assert not sim.run(three(lonely), faults=sim.NONE, mishaps=(pause,)).ok
    assert sim.run(three(lonely), faults=sim.NONE, mishaps=(pause._replace(aimed=False),)).ok, "it checks afterwards"


def test_a_runner_whose_writes_are_fenced_is_never_found() -> None:
    explored = sim.check(three(careful, fenced=True), seeds=range(12))
    assert explored.runs == 12
    assert explored.seconds > 1000


def test_an_assertion_for_pytest_has_the_seed_and_the_story() -> None:
    with pytest.raises(AssertionError, match=r"(?s)seed \d+: stale write at .*worker-\d +holds job, token"):
        sim.check(three(forgetful), seeds=range(20), faults=ONLY_PAUSES)


def test_an_assertion_of_the_program_is_a_violation_and_another_error_is_raised() -> None:
    async def asserts(_process: SimProcess) -> None:
        await asyncio.sleep(2)
        raise AssertionError("two at once")

    async def stumbles(_process: SimProcess) -> None:
        await asyncio.sleep(3)
        raise ZeroDivisionError

    assert str(alone(asserts).violation).endswith("p: two at once")
    with pytest.raises(ZeroDivisionError) as stumbled:
        alone(stumbles, seed=7)
    assert "seed 7, at 3.0" in stumbled.value.__notes__[0]


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    here = "".join(sim.run(three(careful), seed=seed, seconds=60).story() for seed in (1, 2))
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        there = subprocess.run([sys.executable, "-c", STORY], env=environment, capture_output=True, check=True)
        assert there.stdout.decode() == hashlib.sha256(here.encode()).hexdigest()


# --- what goes wrong ----------------------------------------------------------------------------------------------


def test_who_stands_still_loses_its_lease_and_who_waits_gets_it() -> None:
    told: list[str] = []

    async def holder(process: SimProcess) -> None:
        async with process.client() as leases:
            with pytest.raises(LeaseLost):
                async with leases.acquire("job", ttl=10):
                    await asyncio.sleep(100)
            told.append("lost")

    async def waiter(process: SimProcess) -> None:
        await asyncio.sleep(1)
        async with process.client() as leases, leases.acquire("job", ttl=10):
            told.append("granted")

    def program(world: ProgramWorld) -> None:
        world.process("holder", holder)
        world.process("waiter", waiter)

    ran = sim.run(program, faults=sim.NONE, mishaps=(strike(5, Trouble.PAUSE, "holder", 30),))
    assert ran.ok
    assert told == ["granted", "lost"]
    assert 35 < ran.seconds < 36, "it ends when all are done"


@pytest.mark.parametrize("trouble", [Trouble.OUTAGE, Trouble.CUT])
def test_who_cannot_reach_the_store_is_in_jeopardy_first_and_then_lost(trouble: Trouble) -> None:
    signals: list[tuple[str, float]] = []

    async def main(process: SimProcess) -> None:
        loop = asyncio.get_running_loop()
        async with process.client() as leases:
            lease = await leases.acquire("job", ttl=10)
            begun = loop.time()
            lease.on_jeopardy(lambda _: signals.append(("jeopardy", loop.time() - begun)))
            await lease.lost.wait()
            signals.append(("lost", loop.time() - begun))

    where = "store" if trouble is Trouble.OUTAGE else "p"
    assert alone(main, mishaps=(strike(1, trouble, where, 60),)).ok
    assert [name for name, _ in signals] == ["jeopardy", "lost"]
    assert 3 < signals[0][1] < 6
    assert 9 < signals[1][1] < 10


def test_who_is_killed_gives_nothing_back_and_begins_again() -> None:
    lives: list[float] = []

    async def main(process: SimProcess) -> None:
        lives.append(process.world.now / SECOND)
        async with process.client() as leases, leases.acquire("job", ttl=10):
            lives.append(process.world.now / SECOND)
            await asyncio.sleep(50)

    ran = alone(main, mishaps=(strike(5, Trouble.KILL, "p", 1),))
    assert ran.ok
    assert len(lives) == 4
    assert 6 <= lives[2] < 6.1
    assert 9 < lives[3] < 16, "until the lease of its former life has run out"


def test_two_that_believe_at_once_are_noticed() -> None:
    """Which takes clocks that go wrong by more than lessor allows for."""

    async def main(process: SimProcess, after: float) -> None:
        await asyncio.sleep(after)
        async with process.client() as leases, leases.acquire("job", ttl=10):
            await asyncio.sleep(60)

    def program(world: ProgramWorld) -> None:
        world.process("one", main, 0)
        world.process("other", main, 0.5)

    cut = (strike(2, Trouble.CUT, "one", 30),)

    def verdicts(drift: float) -> set[str]:
        faults = sim.NONE._replace(drift=drift)
        runs = [sim.run(program, seed=seed, faults=faults, mishaps=cut) for seed in range(20)]
        return {run.violation.invariant for run in runs if run.violation is not None}

    assert verdicts(0.4) == {"overlap"}
    assert verdicts(0.004) == set()


def test_patterns_live_through_it_too_and_a_seed_decides_all_of_it() -> None:
    runs = [sim.run(guild, seed=seed, seconds=60) for seed in range(6)]
    assert [run.violation for run in runs] == [None] * 6
    for resource in ("desk/0", "desk/1", "left", "right", "one"):
        assert sum(f"wrote {resource} " in note for run in runs for note in run.notes) > 10
    assert sim.run(guild, seed=3, seconds=60).notes == runs[3].notes


def test_an_election_goes_on_and_has_never_two_leaders_at_once() -> None:
    """Through pauses, kills, partitions, outages and clocks that drift."""
    runs = [sim.run(election, seed=seed, seconds=120, faults=ROUGH) for seed in range(24)]
    assert [run.violation for run in runs] == [None] * 24
    terms = [note for run in runs for note in run.notes if " leads, token " in note]
    lost = [note for run in runs for note in run.notes if "holds ruler no more: expired" in note]
    troubles = {str(mishap.trouble) for run in runs for mishap in run.mishaps}
    assert len(terms) > 200
    assert len(lost) > 8, "else nobody rested"
    assert troubles == {str(trouble) for trouble in Trouble}
    for run in runs:
        tokens = [int(note.rpartition(" ")[2]) for note in run.notes if " leads, token " in note]
        assert tokens == sorted(set(tokens))


def test_a_seed_decides_every_step_of_an_election() -> None:
    for seed in range(4):
        first, second = (sim.run(election, seed=seed, seconds=120, faults=ROUGH) for _ in range(2))
        assert first.notes == second.notes
        assert first.story().encode() == second.story().encode()


def test_two_leaders_at_once_are_found_where_clocks_go_wrong() -> None:
    faults = ROUGH._replace(drift=0.4)
    verdicts = {str(sim.run(election, seed=seed, seconds=120, faults=faults).violation) for seed in range(12)}
    assert any("overlap" in verdict or "leads among" in verdict for verdict in verdicts)


# --- asyncio is asyncio -------------------------------------------------------------------------------------------


def test_sleeps_timeouts_tasks_threads_and_cancellation_work_in_no_time() -> None:
    done: list[str] = []

    async def ticks() -> None:
        try:
            while True:
                await asyncio.sleep(60)
                done.append("tick")
        finally:
            done.append("cancelled")

    async def main(_process: SimProcess) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(150):
                await ticks()
        assert 150 <= loop.time() - begun < 150.001
        assert await asyncio.to_thread(lambda: threading.current_thread().name) == "p/executor"
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(n, n)) for n in (3000, 1000)]
        assert [task.result() for task in tasks] == [3000, 1000]
        assert 3150 <= loop.time() - begun < 3151

    begun = time.monotonic()
    ran = alone(main, seconds=10_000)
    assert ran.ok
    assert done == ["tick", "tick", "cancelled"]
    assert 3150 <= ran.seconds < 3151
    assert time.monotonic() - begun < 60


def test_a_loop_that_never_waits_for_long_does_not_stop_time() -> None:
    async def main(process: SimProcess) -> None:
        until = process.world.now + SECOND // 10
        while process.world.now < until:  # noqa: ASYNC110 - that is the point
            await asyncio.sleep(0)

    assert alone(main).ok


def test_the_face_of_the_client_is_whole() -> None:
    async def main(process: SimProcess) -> None:
        async with process.client() as leases, process.client(holder="other") as others:
            watch = await others.watch("job")
            async with leases.acquire("job", ttl=10) as lease:
                assert (await watch.__anext__()).token == lease.token
                with pytest.raises(LeaseHeld):
                    await others.acquire("job", wait=1)
                record = await others.get("job")
                assert record is not None
                assert record.holder == "p"
                await asyncio.sleep(100)
                assert lease.held, "it is renewed"
            assert await others.get("job") is None
            watch.close()
            async with leases.acquire_all(["a", "b"], ttl=10), leases.session() as session:
                await session.acquire("c")
                assert len(await others.list()) == 4

    ran = alone(main, seconds=300)
    assert ran.ok
    assert ran.seconds < 110


def test_a_wait_for_an_event_that_was_given_up_may_be_taken_up_again_at_once() -> None:
    async def main(process: SimProcess) -> None:
        async with process.client() as leases, leases.watch("job") as events:
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await anext(events)
            lease = await leases.acquire("job", ttl=10)
            assert (await anext(events)).token == lease.token

    assert alone(main).ok


def test_nothing_is_left_when_it_is_over() -> None:
    before = threading.active_count()
    sim.run(three(careful), seed=2, seconds=40)
    assert threading.active_count() == before


def test_a_program_without_processes_or_with_two_of_a_name_is_refused() -> None:
    async def main(_process: SimProcess) -> None:
        pass

    def twice(world: ProgramWorld) -> None:
        world.process("p", main)
        world.process("p", main)

    with pytest.raises(ConfigError, match="no process"):
        sim.run(lambda _world: None)
    with pytest.raises(ConfigError, match="already"):
        sim.run(twice)
