"""A process with one contestant in it, which does what it is asked over a pipe."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import warnings
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from bench.contestant import Contestant

PATIENCE = 120.0
_processes = get_context("spawn")


class Failed(Exception):  # noqa: N818 - it says what happened to a contestant
    """A contestant can't be used here, or broke: the text says why."""


class Worker:
    """Starts at once and gets ready in the background; the first question waits for that."""

    def __init__(self, contestant: type[Contestant], url: str, ttl: float) -> None:
        self._pipe, theirs = _processes.Pipe()
        self._process = _processes.Process(target=_serve, args=(theirs, contestant, url, ttl), daemon=True)
        self._process.start()
        theirs.close()
        self._ready = False

    def ask(self, method: str, *args: Any, patience: float = PATIENCE) -> Any:
        """Have the contestant do something, and return its answer."""
        self.send(method, *args)
        return self.receive(patience=patience)

    def send(self, method: str, *args: Any) -> None:
        if not self._ready:
            self._ready = True
            self.receive()
        self._pipe.send((method, args))

    def receive(self, *, patience: float = PATIENCE) -> Any:
        if not self._pipe.poll(patience):
            raise Failed(f"no answer within {patience:g} s")
        try:
            worked, answer = self._pipe.recv()
        except EOFError:
            raise Failed("its process ended") from None
        if not worked:
            raise Failed(answer)
        return answer

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        if self._process.is_alive():
            with contextlib.suppress(OSError):
                self._pipe.send(None)
            self._process.join(2.0)
        self.kill()
        self._pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(pipe: Connection, kind: type[Contestant], url: str, ttl: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; ours ends them
    warnings.simplefilter("ignore")
    # What libraries grumble about would stand between the lines of the progress.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        contestant = kind(url, ttl)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is why this one is not in the tables
        pipe.send((False, _why(error)))
        return
    pipe.send((True, None))
    while (asked := pipe.recv()) is not None:
        method, args = asked
        try:
            answer = getattr(contestant, method)(*args)
        except BaseException as error:  # noqa: BLE001 - as above
            pipe.send((False, _why(error)))
        else:
            pipe.send((True, answer))
    contestant.close()
    os._exit(0)  # threads that a library left behind must not hold the benchmark up


def _why(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    said = lines[0][:160] if lines else ""
    if isinstance(error, ImportError):
        return f"can't be imported: {said}"
    return f"{type(error).__name__}: {said}"
