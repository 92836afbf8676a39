"""No free descriptor, no thread to be had: told as what it is, something that passes, and that keeps a store from being used."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Final

from lessor.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORT: Final = {
    errno.EMFILE: "no free file descriptor in this process",
    errno.ENFILE: "no free file descriptor on this host",
    errno.ENOMEM: "out of memory",
}


def shortage(error: BaseException) -> str | None:
    """Return what there is too little of; None: that isn't why it failed."""
    if isinstance(error, OSError):
        return SHORT.get(error.errno or 0)
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return "can't start new thread"
    if isinstance(error, ImportError) and "Too many open files" in str(error):
        return SHORT[errno.EMFILE]  # of the dynamic linker, which says it in words only
    return None


def no_descriptor() -> str | None:
    """Return why no descriptor can be had right now, for libraries that don't say why they failed; None: one can."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return shortage(error)
    return None


@contextlib.contextmanager
def scarce(store: str) -> Iterator[None]:
    """Raise `StoreUnavailable`, which says why, where there is too little of something."""
    try:
        yield
    except (OSError, RuntimeError, ImportError) as error:
        why = shortage(error)
        if why is None:
            raise
        raise StoreUnavailable(store, why) from error
