"""Errors carry fields, survive pickling, and give no secret away."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from lessor import errors
from lessor.core.ops import Held
from lessor.errors import (
    Cancelled,
    Closed,
    ConfigError,
    Draining,
    Fenced,
    InvalidResource,
    LeaseHeld,
    LeaseLost,
    LessorError,
    QueueFull,
    StillWorking,
    StoreUnavailable,
    WouldDeadlock,
)

EXAMPLES: list[LessorError] = [
    LessorError("something"),
    LeaseHeld("r", holder="host:1", token=7, remaining=1.5, position=2),
    LeaseHeld("r", token=7),
    WouldDeadlock("r", holder="host:1", token=7, remaining=1.5),
    LeaseLost("r", token=7, reason="expired"),
    LeaseLost("r", token=7, reason="expired", needed=2.5),
    Fenced("r", token=7, newest=9),
    StoreUnavailable("sqlite", "it is gone", op="renew"),
    StoreUnavailable("sqlite", "it is gone"),
    ConfigError("no such setting"),
    InvalidResource("a//b", "it has an empty part"),
    InvalidResource(None, "it is NoneType, not str"),
    QueueFull("r", holder="host:1", token=7, remaining=1.5, position=3),
    Draining("r", token=7),
    StillWorking("r", token=7, in_flight=2),
    Closed("this client is closed"),
    Cancelled("the wait was cancelled"),
]


def test_every_class_has_an_example_here() -> None:
    classes = {c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, LessorError)}
    assert classes == {type(e) for e in EXAMPLES}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_comes_back_from_a_pickle_with_all_its_fields(error: LessorError, protocol: int) -> None:
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.args == error.args
    assert vars(back) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_it_can_be_copied_and_raised_again(error: LessorError) -> None:
    with pytest.raises(type(error)) as caught:
        raise copy.copy(error)
    assert str(caught.value) == str(error)


def test_notes_travel_along() -> None:
    error = LeaseLost("r", token=7, reason="expired")
    error.add_note("while writing the report")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while writing the report"]


def test_the_hierarchy() -> None:
    for error in EXAMPLES:
        assert isinstance(error, LessorError)
    assert issubclass(WouldDeadlock, LeaseHeld)
    assert issubclass(QueueFull, LeaseHeld)
    assert issubclass(InvalidResource, ConfigError)
    assert issubclass(ConfigError, ValueError)
    assert not issubclass(LeaseHeld, ValueError)


def test_a_cause_is_kept() -> None:
    cause = OSError("the disk is gone")
    with pytest.raises(StoreUnavailable) as caught:
        raise StoreUnavailable("sqlite", "it is gone") from cause
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (EXAMPLES[1], ["'r'", "host:1", "token 7", "1.5 s"]),
        (EXAMPLES[2], ["another waiter"]),
        (EXAMPLES[3], ["this very thread", "bound the wait"]),
        (EXAMPLES[4], ["'r'", "token 7", "expired"]),
        (EXAMPLES[5], ["2.5 s"]),
        (EXAMPLES[6], ["token 7", "token 9"]),
        (EXAMPLES[7], ["sqlite", "it is gone", "during renew"]),
    ],
)
def test_the_text_has_the_fields(error: LessorError, parts: list[str]) -> None:
    for part in parts:
        assert part in str(error)


def test_a_long_name_is_cut_in_the_text_but_not_in_the_field() -> None:
    error = InvalidResource("x" * 1000, "it is too long")
    assert len(str(error)) < 150
    assert error.resource == "x" * 1000


def test_no_error_takes_a_lease_id() -> None:
    """Nothing that could carry one: no parameter, no field of an outcome that an error is made from."""
    for _, cls in inspect.getmembers(errors, inspect.isclass):
        if issubclass(cls, LessorError) and cls is not LessorError and cls is not ConfigError:
            assert not {"lease_id", "id", "op_fields"} & set(inspect.signature(cls.__init__).parameters)
    assert "lease_id" not in Held._fields
