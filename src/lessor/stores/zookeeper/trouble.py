"""What goes wrong with a server, as the error that it is."""

from __future__ import annotations

from typing import Final

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    QuotaExceededError,
    SASLException,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError

from lessor.errors import ConfigError, LessorError, StoreUnavailable
from lessor.stores.scarcity import shortage

PASSES: Final = {
    ConnectionLoss: "the connection was lost",
    SessionExpiredError: "the session has expired",
    ConnectionClosedError: "the connection is closed",
    KazooTimeoutError: "no answer in time",
    QuotaExceededError: "the quota is used up",
}


def login_refused(where: object) -> ConfigError:
    """Return the error for a user name or a password that is wrong."""
    return ConfigError(f"ZooKeeper at {where} refuses the user name or password: mend the URL")


def explain(error: BaseException, where: object) -> LessorError:
    """Return our error for one of kazoo's."""
    if isinstance(error, LessorError):
        return error
    if isinstance(error, (AuthFailedError, SASLException)):
        return login_refused(where)
    if isinstance(error, NoAuthError):
        return ConfigError(
            f"ZooKeeper at {where} doesn't permit it to this user: name another one in the URL, or mend the nodes' ACLs"
        )
    for kind, text in PASSES.items():
        if isinstance(error, kind):
            return StoreUnavailable("zookeeper", f"{where}: {text}")
    why = shortage(error)
    if why is not None:
        return StoreUnavailable("zookeeper", f"{where}: {why}")
    if isinstance(error, (KazooException, OSError)):
        return StoreUnavailable("zookeeper", f"{where}: {type(error).__name__}")
    raise error
