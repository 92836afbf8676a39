"""What can't be a stamp, for the tests of each guard."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from lessor import ConfigError, InvalidResource, LeaseLost


class Message(NamedTuple):
    """Something of the user's own that carries a stamp."""

    body: str
    resource: str
    token: Any


class LostLease:
    """A lease that knows that it is lost."""

    resource = "job"
    token = 2**53 - 1  # the newest there can be: let in, it would be seen

    def check(self) -> None:
        raise LeaseLost(self.resource, token=self.token, reason="expired")


BAD: list[Any] = [
    pytest.param(None, ConfigError, "NoneType", id="none"),
    pytest.param("job", ConfigError, "str 'job'", id="text"),
    pytest.param(("job",), ConfigError, "tuple", id="one"),
    pytest.param(("job", 1, 2), ConfigError, "tuple", id="three"),
    pytest.param(["job", 1], ConfigError, "list", id="a list"),
    pytest.param(("job", "1"), ConfigError, "int, and this is str '1'", id="token as text"),
    pytest.param(("job", 1.0), ConfigError, "float 1.0", id="token as float"),
    pytest.param(("job", True), ConfigError, "bool", id="token as bool"),
    pytest.param(("job", None), ConfigError, "NoneType", id="no token"),
    pytest.param(("job", -1), ConfigError, "at least 0", id="negative"),
    pytest.param(("job", 2**53), ConfigError, r"below 2\*\*53", id="too large"),
    pytest.param(("", 1), InvalidResource, "empty", id="no name"),
    pytest.param((b"job", 1), InvalidResource, "bytes, not str", id="name as bytes"),
    pytest.param((3, 1), InvalidResource, "int, not str", id="name as int"),
    pytest.param(("job\x00", 1), InvalidResource, "control", id="control character"),
    pytest.param(Message("x", "job", "7"), ConfigError, "str '7'", id="message with text"),
    pytest.param(LostLease(), LeaseLost, "expired", id="lost"),
]
bad_bearers = pytest.mark.parametrize(("bearer", "error", "text"), BAD)
