from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.s3 import S3Server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """One S3 server for all tests; each uses objects of its own."""
    from tests.servers.s3 import s3_server

    with s3_server() as server:
        yield server
