"""What can't be a singleton, since it would run when its lease is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lessor import Client, ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


def test_a_generator_is_refused() -> None:
    def parts() -> Iterator[int]:
        yield 1

    async def awaited_parts() -> AsyncIterator[int]:
        yield 1

    with Client("memory://") as client:
        for work in (parts, awaited_parts):
            with pytest.raises(ConfigError, match="generator"):
                client.singleton("job", ttl=30)(work)
