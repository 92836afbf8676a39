"""Passwords that weren't escaped in a URL: what is refused says so, and no piece of them is in the text."""

from __future__ import annotations

import pytest

from lessor.errors import ConfigError
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import StoreURL
from lessor.stores.registry import KNOWN, open_store

PIECES = ("qzsecret", "wxhidden")
REMOTE = [scheme for scheme in KNOWN if scheme not in ("memory", "sqlite")]
PLACE = {"redis+sentinel": "h1/mymaster/0", "rediss+sentinel": "h1/mymaster/0", "paxos": "h1", "paxoss": "h1"}


def everything_said(url: str) -> str:
    """Return what is said of the URL: why it is refused, or else how the store shows itself."""
    try:
        store = open_store(url, SYSTEM)
    except ConfigError as error:
        return f"{error} {error!r} {error.__cause__!r}"
    store.close()
    return f"{store.url} {store!r} {getattr(store, '_address', '')!r}"


@pytest.mark.parametrize(
    "character", [*"@:/?#&=%[], ;+", "℀", "/1?", "?a=", "?a=b&", "&=", "[x]", "@1/", "@1?a=", "\n"]
)
@pytest.mark.parametrize("scheme", REMOTE)
def test_no_piece_of_a_password_is_in_a_text(scheme: str, character: str) -> None:
    place = PLACE.get(scheme, "h1")
    first, second = PIECES
    secrets = (f"{first}{character}{second}", f"{character}{second}", f"12{character}{second}")
    options = ("password", "ssl_password", "sentinel_password", "oauth_client_secret")
    urls = [f"{scheme}://{user}:{secret}@{place}" for user in ("", "user") for secret in secrets]
    urls += [f"{scheme}://{place}?{option}={secrets[0]}" for option in options]
    for url in urls:
        said = everything_said(url)
        assert not [piece for piece in PIECES if piece in said], url


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:se℀cret@h",
        "redis://:pa?ss@h/0",
        "redis://:12/ss@h/0",
        "redis+sentinel://h/mymaster?sentinel_password=top&secret",
        "redis+sentinel://h/mymaster?sentinel_password=top&secret=x",
        "postgresql://u:12/34@h/db",
        "postgresql://h/db?password=top&secret=x",
        "zookeeper://u:12/34@h/node",
        "etcd://u:[12]@h",
        "paxos://:12345678/12345678@h",
    ],
)
def test_the_refusal_says_to_escape_the_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"escape @ : / \? # & in a password"):
        open_store(url, SYSTEM)


def test_an_at_sign_that_belongs_to_no_password_may_be_written() -> None:
    assert StoreURL.parse("sqlite:///a@b.db").path == "/a@b.db"
    assert StoreURL.parse("zookeeper://u:p@h/a%40b").path == "/a@b"
    assert StoreURL.parse("postgresql://u:p@h/db?listen=postgresql://u@h2/db").options["listen"].endswith("u@h2/db")


def test_what_postgresql_is_told_in_secret_is_not_shown() -> None:
    pytest.importorskip("psycopg")
    hidden = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key", "sslkeylogfile")
    options = "&".join(f"{name}=qzsecret" for name in hidden)
    said = everything_said(f"postgresql://h/db?sslmode=require&{options}")
    assert "sslmode=require" in said
    assert "qzsecret" not in said
