"""What a write carries: the resource that it belongs to, and the token of the grant that it was made under.

A stamp proves nothing: whoever can make one up can write. It keeps late holders out, not liars.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

from lessor.core.lease import TOKEN_LIMIT, check_resource
from lessor.core.view import View
from lessor.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


@runtime_checkable
class Fenceable(Protocol):
    """Anything that knows its resource and its token: a lease of either client, a `Stamp`, a message of your own."""

    @property
    def resource(self) -> str:
        """The name of what is held."""

    @property
    def token(self) -> int:
        """The fencing token of the grant."""


class Stamp(NamedTuple):
    """A resource and a token, without the lease: what is sent along when somebody else does the write."""

    resource: str
    token: int


Bearer: TypeAlias = Fenceable | tuple[str, int]
"""What every guard takes."""


def stamp_of(bearer: Bearer) -> Stamp:
    """Return the stamp of a lease or a pair, or raise.

    A lease that knows itself lost raises `LeaseLost` here, before anything is touched. `ConfigError` and
    `InvalidResource` are for what can't be a stamp.
    """
    pair: object = bearer
    if isinstance(bearer, View):
        raise ConfigError(
            f"{type(bearer).__name__} shows what the store knows, not that you hold the resource; hand in the lease, or "
            "the pair that came with the work"
        )
    if isinstance(bearer, Fenceable):
        check = getattr(bearer, "check", None)
        if callable(check):
            check()
        resource, token = bearer.resource, bearer.token
    elif isinstance(pair, tuple) and len(pair) == 2:
        resource, token = pair
    else:
        raise ConfigError(f"a guard takes a lease or a (resource, token) pair, and this is {_shown(bearer)}")
    return Stamp(check_resource(resource), check_token(token))


def check_token(token: object) -> int:
    """Return the token if it can be one; raise `ConfigError` with the reason if not."""
    if not isinstance(token, int) or isinstance(token, bool):
        # Text is not turned into a number here: "9" > "10" is how tokens that are text get compared elsewhere.
        raise ConfigError(f"a token is an int, and this is {_shown(token)}")
    if not 0 <= token < TOKEN_LIMIT:
        raise ConfigError(f"a token is at least 0 and below 2**53, and this is {_shown(token)}")
    return int(token)


def from_environ(environ: Mapping[str, str] | None = None) -> Stamp:
    """Return the stamp of a command under ``lessor run``, which knows it from its environment.

    It says under which grant the command was started, not that this is still held.
    """
    environ = os.environ if environ is None else environ
    values = []
    for name in ("LESSOR_RESOURCE", "LESSOR_TOKEN"):
        value = environ.get(name)
        if not value:
            raise ConfigError(f"{name} is not set: start this command with `lessor run`")
        values.append(value)
    resource, token = values
    if not (token.isascii() and token.isdigit() and len(token) <= 16):
        raise ConfigError(f"LESSOR_TOKEN is no token: {_shown(token)}")
    return Stamp(check_resource(resource), check_token(int(token)))


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
