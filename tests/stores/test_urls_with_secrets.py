"""Passwords that weren't escaped in a URL: what is refused says so, and no piece of them is in the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lessor.errors import ConfigError
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import StoreURL
from lessor.stores.registry import KNOWN, open_store

if TYPE_CHECKING:
    from pathlib import Path

PIECES = ("qzsecret", "wxhidden")
REMOTE = [scheme for scheme in KNOWN if scheme not in ("memory", "sqlite")]
PLACE = {scheme: "h1/mymaster/0" for scheme in REMOTE if scheme.endswith("+sentinel")}


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


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (
            "redis://h?namspace=x",
            "redis:// has no option 'namspace', did you mean 'namespace'?; there are: eviction, namespace, ",
        ),
        ("sqlite:///x.db?mode=ro", "sqlite:// has no option 'mode'; there are: namespace"),
        (
            "postgresql://h/db?sslmod=require",
            "postgresql:// has no option 'sslmod', did you mean 'sslmode'?; there are: ",
        ),
        ("zookeeper://h/x?tsl=true", "zookeeper:// has no option 'tsl', did you mean 'tls'?; there are: acl, "),
        ("redis://user:pw@h?replica=1", "redis:// has no option 'replica', did you mean 'replicas'?; there are: "),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest_one(url: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_store(url, SYSTEM)
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    "query",
    [
        "qzsecret=1@h",
        "sentinel_password=x&qzsecret=1",
        "a=b&Qzsecret=1",
        "qzsecret1=",
        "a=x%40y&qzsecret=1",
        "token=x&qzsecret=y",
    ],
)
def test_an_unknown_option_that_may_be_part_of_a_secret_is_not_named(query: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_store(f"redis://u:p@h?{query}", SYSTEM)
    assert "qzsecret" not in str(refused.value).lower()


SCHEMES = [scheme for scheme in REMOTE if not scheme.startswith("paxos")]


@pytest.mark.parametrize("scheme", REMOTE)
def test_a_password_from_a_file_or_the_environment_is_used_and_not_shown(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("qzsecret@/?#& wxhidden\n")
    monkeypatch.setenv("STORE_PASSWORD", "qzsecret@/?#& wxhidden")
    place = PLACE.get(scheme, "h1")
    login, name = ("", "secret") if scheme.startswith("paxos") else ("user@", "password")
    for option in (f"{name}_file={tmp_path}/password", f"{name}_env=STORE_PASSWORD"):
        store = open_store(f"{scheme}://{login}{place}?{option}", SYSTEM)
        address: Any = store._address if hasattr(store, "_address") else store
        said = f"{store.url} {store!r} {address!r}"
        store.close()
        assert "qzsecret" not in said
        assert option.partition("=")[0] in store.url  # so that another process can open the same store


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_password_that_is_not_there_is_told_without_what_the_option_says(scheme: str, tmp_path: Path) -> None:
    place = PLACE.get(scheme, "h1")
    (tmp_path / "empty").touch()
    for query, why in (
        ("password_file=/qzsecret", "password_file can't be used: No such file or directory"),
        (f"password_file={tmp_path}", "password_file can't be used: Is a directory"),
        (f"password_file={tmp_path}/empty", "password_file can't be used: it is empty"),
        ("password_env=qzsecret", "password_env can't be used: there is no such environment variable"),
        ("password_env=HOME&password_file=/qzsecret", "has several passwords: password_file and password_env"),
    ):
        with pytest.raises(ConfigError) as refused:
            open_store(f"{scheme}://user@{place}?{query}", SYSTEM)
        assert why in str(refused.value)
        assert "qzsecret" not in str(refused.value)
    with pytest.raises(ConfigError, match="has several passwords: password and password_env"):
        open_store(f"{scheme}://user:wxhidden@{place}?password_env=HOME", SYSTEM)


@pytest.mark.parametrize("scheme", ["valkey", "valkeys", "valkey+cluster"])
def test_valkey_is_spelt_as_it_is(scheme: str) -> None:
    store = open_store(f"{scheme}://h1", SYSTEM)
    assert store.url.startswith(f"{scheme}://h1:6379/")
    store.close()
