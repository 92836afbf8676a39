"""Resource names and metadata: what is accepted round-trips, what is refused says why."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lessor.core.entry import Entry, Reservation, Waiter, Waiting
from lessor.core.lease import MAX_RESOURCE_BYTES, check_resource, decode_metadata, encode_metadata
from lessor.errors import ConfigError, InvalidResource

parts = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/"), min_size=1, max_size=40)
names = st.lists(parts, min_size=1, max_size=5).map("/".join).filter(lambda n: len(n.encode()) <= MAX_RESOURCE_BYTES)


@given(names)
def test_a_good_name_comes_back_as_it_is(name: str) -> None:
    assert check_resource(name) == name


@given(st.text(max_size=600))
def test_any_text_is_either_good_by_the_rules_or_refused_with_a_reason(name: str) -> None:
    control = any(unicodedata.category(c) == "Cc" for c in name)
    surrogate = any(unicodedata.category(c) == "Cs" for c in name)
    size = 0 if surrogate else len(name.encode())
    slashes = "" in name.split("/")
    if not (control or surrogate or slashes or size > MAX_RESOURCE_BYTES):
        assert check_resource(name) == name
        return
    with pytest.raises(InvalidResource) as caught:
        check_resource(name)
    assert caught.value.resource == name
    assert caught.value.why in str(caught.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        ("/a", "starts or ends"),
        ("a/", "starts or ends"),
        ("/", "starts or ends"),
        ("a//b", "empty part"),
        ("a\0b", r"U\+0000 at position 1"),
        ("a\nb", r"U\+000A at position 1"),
        ("ab\x7f", r"U\+007F at position 2"),
        ("\x85", r"U\+0085"),
        ("\ud800", "surrogate"),
        ("x" * 513, "513 bytes"),
        ("é" * 257, "514 bytes"),
        (7, "int, not str"),
        (b"a", "bytes, not str"),
        (None, "NoneType, not str"),
    ],
)
def test_a_bad_name_is_refused_with_the_reason(name: Any, why: str) -> None:
    with pytest.raises(InvalidResource, match=why):
        check_resource(name)


@pytest.mark.parametrize(
    "name", ["a", "x" * 512, "é" * 256, "a/b/c", "日本/語", "a b", "..", "%2F", "*?[", "\U0010ffff"]
)
def test_odd_names_that_are_fine(name: str) -> None:
    assert check_resource(name) == name


# --- metadata -----------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(st.dictionaries(texts, texts))
def test_metadata_round_trips(metadata: dict[str, str]) -> None:
    text = encode_metadata(metadata, limit=10**6)
    assert decode_metadata(text) == metadata
    assert (text == "") == (not metadata)


@given(st.dictionaries(texts, texts, min_size=1))
def test_the_limit_counts_bytes_and_is_exact(metadata: dict[str, str]) -> None:
    size = len(encode_metadata(metadata, limit=10**6).encode())
    assert encode_metadata(metadata, limit=size)
    with pytest.raises(ConfigError, match=f"{size} bytes, and {size - 1} are the most"):
        encode_metadata(metadata, limit=size - 1)


@pytest.mark.parametrize("metadata", [{"a": 1}, {1: "a"}, {"a": None}, {"a": b"b"}])
def test_metadata_maps_text_to_text(metadata: Any) -> None:
    with pytest.raises(ConfigError, match="str to str"):
        encode_metadata(metadata, limit=1000)


def test_metadata_without_a_utf8_form_is_refused() -> None:
    with pytest.raises(ConfigError, match="surrogate"):
        encode_metadata({"a": "\udc80"}, limit=1000)


def test_no_metadata_is_no_text() -> None:
    assert encode_metadata(None, limit=0) == encode_metadata({}, limit=0) == ""
    assert decode_metadata("") == {}


# --- what a store keeps in one field of what most entries don't have ----------------------------------------------

numbers = st.integers(0, 2**63 - 1)
waiters = st.builds(Waiter, texts, texts, texts, numbers, numbers, st.booleans(), st.integers())
queues = st.lists(waiters, max_size=4, unique_by=lambda w: w.lease_id)
reservations = st.none() | st.builds(Reservation, numbers, texts, texts, texts)
waitings = st.builds(Waiting, queues, reservations, st.dictionaries(texts, numbers, max_size=3))


@given(waitings, texts, numbers)
def test_what_is_rare_round_trips_as_plain_ascii(waiting: Waiting, state: str, ended: int) -> None:
    kept = Entry("r", waiting=waiting, state=state, children_ended=ended)
    text = kept.rare()
    assert text is not None
    assert text.isascii()
    json.loads(text)
    read = Entry("r")
    read.take_rare(text)
    assert (read.state, read.children_ended) == (state, ended)
    assert read.waiting == waiting or (read.waiting, waiting) == (None, Waiting())


def test_nothing_rare_is_no_text() -> None:
    assert Entry("r").rare() is None


def test_what_an_older_version_wrote_is_read() -> None:
    entry = Entry("r")
    entry.take_rare('{"q":[["id","h","to",5,6,1]],"r":[7,"id",""],"t":{"x":9}}')
    assert entry.waiting == Waiting([Waiter("id", "h", "to", 5, 6, passed=True)], Reservation(7, "id"), {"x": 9})
    assert (entry.state, entry.children_ended) == ("", 0)


def test_an_older_version_reads_what_it_knows_of_what_is_written_now() -> None:
    waiter = Waiter("id", "h", "to", 5, 6, passed=True, priority=3)
    text = Entry("r", waiting=Waiting([waiter], Reservation(7, "id", "", "blob")), state="s", children_ended=2).rare()
    assert text is not None
    data = json.loads(text)
    assert (data["q"], data["r"], data["t"]) == ([["id", "h", "to", 5, 6, 1]], [7, "id", ""], {})
    alone = Entry("r", state="s").rare()
    assert alone is not None
    data = json.loads(alone)
    assert (data["q"], data["r"], data["t"]) == ([], None, {})
