"""The log or its index is deleted under running processes: they share one log again, and no two go on renewing."""

from __future__ import annotations

import fcntl
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Renew, Renewed
from lessor.runtime.clock import SYSTEM
from lessor.stores.sqlite import companions, forks
from lessor.testing.child import Child
from lessor.testing.conformance.base import Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lessor.core.ops import Outcome
    from lessor.stores.sqlite import SqliteStore

LONG = 60
DELETED = pytest.mark.parametrize("deleted", [("-wal",), ("-shm",), ("-wal", "-shm")], ids="".join)


@pytest.fixture
def start(path: str) -> Iterator[Callable[[], Child]]:
    """Return what starts a process that uses the file."""
    children: list[Child] = []

    def start() -> Child:
        children.append(Child(f"sqlite:///{path}"))
        return children[-1]

    yield start
    for child in children:
        child.__exit__()


def ask(child: Child, command: str, resource: str = "job") -> str:
    """Return what came of it, in a word. With a grace, since the shortest way looks at the files every millisecond only."""
    terms = {"ttl": LONG, "wait": 0, "grace": 1} if command == "acquire" else {}
    answer = child.ask(command, resource=resource, **terms)
    return str(answer.get("error", "done"))


def delete(path: str, names: tuple[str, ...]) -> None:
    for name in names:
        os.unlink(path + name)


@DELETED
@pytest.mark.parametrize("is_late", [True, False], ids=["opened after", "opened before"])
@pytest.mark.parametrize("is_first", [True, False], ids=["the other goes on first", "the holder goes on first"])
def test_no_two_processes_go_on_renewing(
    start: Callable[[], Child], path: str, deleted: tuple[str, ...], *, is_late: bool, is_first: bool
) -> None:
    holder = start()
    other = None if is_late else start()
    if other is not None:
        assert ask(other, "acquire", "theirs") == "done"
    assert ask(holder, "acquire") == "done"
    delete(path, deleted)
    other = other or start()
    if is_first:
        taken = ask(other, "acquire")
        kept = ask(holder, "renew")
    else:
        kept = ask(holder, "renew")
        taken = ask(other, "acquire")
    # What was only in the log is lost if a newcomer has made another one. One that has it open saves it.
    assert (kept, taken) == (("LeaseLost", "done") if is_late and "-wal" in deleted else ("done", "LeaseHeld"))
    # And they share one log: each hears of what the other does from now on.
    assert ask(holder, "acquire", "next") == "done"
    assert ask(other, "acquire", "next") == "LeaseHeld"
    assert ask(other, "acquire", "last") == "done"
    assert ask(holder, "acquire", "last") == "LeaseHeld"
    if taken == "done":
        assert ask(other, "renew") == "done"


@DELETED
def test_three_processes_and_two_deletions(start: Callable[[], Child], path: str, deleted: tuple[str, ...]) -> None:
    """Each goes on in an order of its own, and all end up with the same log."""
    children = [start() for _ in range(3)]
    for round_, order in enumerate([(0, 1, 2), (2, 0, 1)]):
        delete(path, deleted)
        for number in order:
            assert ask(children[number], "acquire", f"own/{round_}/{number}") == "done"
        for number in order:
            for other in order:
                expected = "done" if number == other else "LeaseHeld"
                command = "renew" if number == other else "acquire"
                assert ask(children[other], command, f"own/{round_}/{number}") == expected


def test_a_log_that_was_deleted_is_not_written_back(
    start: Callable[[], Child], open_store: Callable[..., SqliteStore], path: str
) -> None:
    """Neither when its last user ends: that would undo what has happened in the log that is there now."""
    stale = open_store(with_clock=SYSTEM)
    assert isinstance(take(stale, "stale"), Granted)
    delete(path, ("-wal", "-shm"))
    child = start()
    assert ask(child, "acquire") == "done"
    child.kill()  # so that nobody has the file open, and the one that closes it takes itself to be the last
    stale.close()
    fresh = open_store(with_clock=SYSTEM)
    assert isinstance(take(fresh, "job"), Held)
    assert isinstance(take(fresh, "stale"), Granted)


def test_a_process_with_two_stores_starts_over_with_both(
    open_store: Callable[..., SqliteStore], start: Callable[[], Child], path: str
) -> None:
    """SQLite shares the index among all connections of a process, so the idle one must not keep the old one open."""
    one, two = open_store(with_clock=SYSTEM), open_store(with_clock=SYSTEM)
    assert isinstance(take(one, "a"), Granted)
    assert isinstance(take(two, "b"), Granted)
    delete(path, ("-wal", "-shm"))
    child = start()
    assert ask(child, "acquire") == "done"
    assert isinstance(take(one, "job"), Held)
    assert isinstance(take(two, "job"), Held)
    assert len(forks.stores()) >= 2


@DELETED
def test_a_store_alone_loses_nothing(
    open_store: Callable[..., SqliteStore], path: str, deleted: tuple[str, ...]
) -> None:
    store = open_store(with_clock=SYSTEM)
    for number in range(3):
        assert isinstance(take(store, f"r/{number}"), Granted)
        delete(path, deleted)
        for before in range(number + 1):
            assert knows(store, f"r/{before}")


def test_a_process_that_died_while_it_saved_a_log_keeps_nobody_out(
    open_store: Callable[..., SqliteStore], path: str
) -> None:
    store = open_store(with_clock=SYSTEM)
    assert isinstance(take(store, "job"), Granted)
    store.close()
    os.mkdir(path + "-wal")
    assert knows(open_store(with_clock=SYSTEM), "job")


def test_nobody_opens_the_file_while_a_log_is_saved(open_store: Callable[..., SqliteStore], path: str) -> None:
    store = open_store(with_clock=SYSTEM)
    take(store, "job")
    store.close()
    with companions._barrier(path + "-wal"):
        opening = Thread(lambda: knows(open_store(with_clock=SYSTEM), "job"))
        assert companions.is_barred(path)
        assert os.path.isdir(path + "-wal")
    assert opening.result()


def test_a_barrier_that_was_swept_away_before_it_was_locked_is_none(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of that name may be taken for one that a dead process has left."""
    flock = fcntl.flock

    def swept(descriptor: int, how: int) -> None:
        os.rmdir(path + "-wal")
        flock(descriptor, how)

    monkeypatch.setattr("fcntl.flock", swept)
    with pytest.raises(FileNotFoundError), companions._barrier(path + "-wal"):
        raise AssertionError("not barred")


def test_a_barrier_is_locked_until_it_is_gone(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process sweeps away one that isn't locked, and may have made its own by then."""
    rmdir = os.rmdir

    def swept_first(folder: str) -> None:
        monkeypatch.undo()
        assert companions.is_barred(path)
        rmdir(folder)

    with companions._barrier(path + "-wal"):
        monkeypatch.setattr("os.rmdir", swept_first)
    assert not os.path.exists(path + "-wal")


def test_a_read_starts_over_too(open_store: Callable[..., SqliteStore], start: Callable[[], Child], path: str) -> None:
    store = open_store(with_clock=SYSTEM)
    delete(path, ("-wal",))
    assert ask(start(), "acquire") == "done"
    assert knows(store, "job")


def test_the_folder_is_moved_and_a_copy_takes_its_place(
    open_store: Callable[..., SqliteStore], tmp_path: object
) -> None:
    """The holder in the folder that was moved is not confirmed any more; the copy has what was there when it was made."""
    folder = os.path.join(str(tmp_path), "folder")
    os.mkdir(folder)
    store = open_store(os.path.join(folder, "leases.db"), with_clock=SYSTEM)
    granted = take(store, "job")
    assert isinstance(granted, Granted)
    os.rename(folder, folder + ".moved")
    renew = Renew("job", "id-job", granted.token, LONG * SECOND)
    assert "deleted" in str(store.apply([renew], timeout=1)[0])
    shutil.copytree(folder + ".moved", folder)
    assert "replaced" in str(store.apply([renew], timeout=1)[0])
    again = open_store(os.path.join(folder, "leases.db"), with_clock=SYSTEM)
    assert isinstance(again.apply([renew], timeout=LONG)[0], Renewed)


def test_what_took_the_place_of_the_log_while_it_was_opened_is_not_taken_for_it(path: str) -> None:
    for name in ("-wal", "-shm"):
        with open(path + name, "wb"):
            pass
    with pytest.raises(companions.LogReplaced):
        companions.opened(path)
    with open(path + "-wal", "rb"), open(path + "-shm", "rb"):
        assert companions.opened(path) == companions.of(path)


def take(store: SqliteStore, resource: str) -> Outcome:
    return store.apply([Acquire(resource, "id-" + resource, "holder", LONG * SECOND, grace_ns=1)], timeout=LONG)[0]


def knows(store: SqliteStore, resource: str) -> bool:
    return store.read([resource], timeout=LONG) != [None]
