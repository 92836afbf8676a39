"""Every error that lessor raises.

::

    LessorError
    ├── LeaseHeld          it has another holder, or is closed (holder, token, remaining, closed)
    │   ├── WouldDeadlock      the caller holds it itself, and would wait without a bound
    │   └── QueueFull          too many wait for it already
    ├── LeaseLost          it was ours and is no more (reason)
    ├── Draining           the lease takes no more work
    ├── StillWorking       a drain's time is over, and work goes on; also a TimeoutError
    ├── Fenced             a guard refused a stale token
    ├── Closed             the client was closed
    ├── Cancelled          the wait was cancelled
    ├── StoreUnavailable   the store can't be asked, or didn't answer in time
    └── ConfigError        the settings can't work; also a ValueError
        └── InvalidResource    the name can't be used

They carry fields, not only text, and they can be pickled. None of them ever holds a lease id or a password.
"""

from __future__ import annotations

from typing import Any


def _revive(cls: type[LessorError], args: tuple[Any, ...], fields: dict[str, Any]) -> LessorError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(fields)
    return error


class LessorError(Exception):
    """The root: ``except LessorError`` catches all that this library raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructors take fields, not the message, so the default way to pickle would fail.
        return _revive, (type(self), self.args, self.__dict__.copy())


class LeaseHeld(LessorError):
    """The resource has another holder or is closed, and it did not become free within the wait."""

    closed: str | None
    """Why nobody can acquire it although nobody holds it: ``"hold_at_least"`` after an early release, ``"lock_delay"``
    after an expiry. `holder` and `token` are then those of the last lease. None: it is held, or reserved for a waiter."""

    def __init__(
        self,
        resource: str,
        *,
        holder: str = "",
        token: int = 0,
        remaining: float = 0.0,
        position: int | None = None,
        closed: str | None = None,
    ) -> None:
        self.resource = resource
        self.holder = holder
        self.token = token
        self.remaining = remaining
        self.position = position
        self.closed = closed
        super().__init__(f"{resource!r} is {self._how()}")

    def _how(self) -> str:
        left = f"{self.remaining:.3g} s"
        if self.closed == "hold_at_least":
            return f"closed for another {left}: {self.holder} (token {self.token}) released it within its hold_at_least"
        if self.closed is not None:
            return f"closed for another {left}: the lease of {self.holder} (token {self.token}) expired, and its lock_delay follows"
        if not self.holder:
            return f"about to go to another waiter (last token {self.token}, reserved for {left})"
        return f"held by {self.holder} (token {self.token}, free in {left} unless renewed)"


class WouldDeadlock(LeaseHeld):
    """A thread or task would wait without a bound for a lease that it holds itself."""

    def __init__(self, resource: str, *, holder: str = "", token: int = 0, remaining: float = 0.0) -> None:
        super().__init__(resource, holder=holder, token=token, remaining=remaining)
        text = f"{resource!r} is held by this very thread or task (token {token}); waiting might never end."
        self.args = (f"{text} Release it first, or bound the wait.",)


class QueueFull(LeaseHeld):
    """As many wait for the resource as the asker said that there may be, so it did not queue up."""

    def __init__(self, resource: str, **fields: Any) -> None:
        super().__init__(resource, **fields)
        self.args = (f"{self.args[0]}, and its queue is full",)


class LeaseLost(LessorError):
    """The lease was ours and is not any more: stop the work that it protects.

    From ``renew()``, with ``remaining`` above 0: the lease is held for that many seconds more, and can't be renewed.
    """

    def __init__(
        self, resource: str, *, token: int, reason: str, needed: float | None = None, remaining: float = 0.0
    ) -> None:
        self.resource = resource
        self.token = token
        self.reason = reason
        self.needed = needed
        self.remaining = remaining
        if remaining > 0:
            text = f"the lease on {resource!r} (token {token}) can't be renewed: {reason}; it ends in {remaining:.3g} s"
        elif needed is None:
            text = f"the lease on {resource!r} (token {token}) is lost: {reason}"
        else:
            text = f"the lease on {resource!r} (token {token}) has less than the {needed:g} s left that were required"
        super().__init__(text)


class Draining(LessorError):
    """The lease takes no more work: it is given back once the work in flight has ended."""

    def __init__(self, resource: str, *, token: int) -> None:
        self.resource = resource
        self.token = token
        super().__init__(f"the lease on {resource!r} (token {token}) is drained, and takes no more work")


class StillWorking(LessorError, TimeoutError):
    """The time for a drain is over, and work is in flight still. So the lease is held still, and takes no more work."""

    def __init__(self, resource: str, *, token: int, in_flight: int) -> None:
        self.resource = resource
        self.token = token
        self.in_flight = in_flight
        super().__init__(
            f"the lease on {resource!r} (token {token}) is not drained in time: {in_flight} in flight, so it is kept"
        )


class Fenced(LessorError):
    """A guard has seen a newer token, so this write came from a holder whose time is over."""

    def __init__(self, resource: str, *, token: int, newest: int) -> None:
        self.resource = resource
        self.token = token
        self.newest = newest
        super().__init__(f"the write to {resource!r} with token {token} is refused: token {newest} has been here")


class StoreUnavailable(LessorError):
    """The store can't be reached, refuses, or gave no answer in time. What was asked may or may not have happened."""

    def __init__(self, store: str, detail: str, *, op: str | None = None) -> None:
        self.store = store
        self.detail = detail
        self.op = op
        during = f" during {op}" if op else ""
        super().__init__(f"{store}: {detail}{during}")


class Closed(LessorError):
    """The client was closed: before this call, or while it waited."""


class Cancelled(LessorError):
    """The wait was ended by its `Cancellation`. Nothing was acquired, and the place in the queue is given up."""


class ConfigError(LessorError, ValueError):
    """The settings, the URL or the file can't work as they are. The text says what to change."""


class InvalidResource(ConfigError):
    """The name can't name a resource."""

    def __init__(self, resource: object, why: str) -> None:
        self.resource = resource
        self.why = why
        shown = repr(resource)
        super().__init__(f"{shown if len(shown) <= 80 else shown[:77] + '...'} can't name a resource: {why}")
