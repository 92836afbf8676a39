"""How many requests a server had, as it counts them itself."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis

if TYPE_CHECKING:
    from typing import Any


def requests(url: str) -> int | None:
    """Return how many requests to acquire or release came so far; None where there is no server to count them.

    PostgreSQL counts what a connection did when that has ended, at the latest.
    """
    bare = urlunsplit(urlsplit(url)._replace(query=""))
    if url.startswith("redis"):
        client: Any = redis.Redis.from_url(bare)
        with client:
            stats = client.info("commandstats")
        return sum(int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("eval", "evalsha"))
    if url.startswith("postgresql"):
        with psycopg.connect(bare, autocommit=True) as connection:
            # A rehearsal calls ten of them, besides.
            query = """
                SELECT coalesce(sum(calls * CASE funcname WHEN 'rehearse' THEN -10 ELSE 1 END), 0)::bigint
                  FROM pg_stat_user_functions WHERE funcname IN ('acquire', 'release', 'apply', 'rehearse')"""
            row = connection.execute(query).fetchone()
            assert row is not None
            return int(row[0])
    return None
