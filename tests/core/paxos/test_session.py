from __future__ import annotations

from leasehold.core.paxos.session import Session

CHILD = ("child", 6)


def session() -> Session:
    """A child that acceptors a and b took in, until 100."""
    book = Session(3)
    book.acked(CHILD, "a", 1, 100)
    book.acked(CHILD, "b", 1, 100)
    return book


def test_a_child_lasts_as_long_as_a_majority_supports() -> None:
    book = session()
    assert book.deadline(CHILD) == 100
    assert book.renewed("a", 1, [CHILD], 200, 50) == []
    assert book.deadline(CHILD) == 100
    assert book.renewed("b", 1, [CHILD], 180, 50) == []
    assert book.deadline(CHILD) == 180


def test_an_acceptor_that_never_took_the_child_does_not_count() -> None:
    book = session()
    assert book.renewed("c", 1, [CHILD], 200, 50) == [CHILD]
    assert book.renewed("a", 1, [CHILD], 200, 50) == []
    assert book.deadline(CHILD) == 100
    book.acked(CHILD, "c", 1, 200)
    assert book.deadline(CHILD) == 200


def test_nor_one_that_restarted_or_lost_it_or_whose_time_ran_out() -> None:
    book = session()
    assert book.renewed("a", 2, [CHILD], 200, 50) == [CHILD]
    assert book.renewed("b", 1, [], 200, 50) == [CHILD]
    assert book.renewed("b", 1, [CHILD], 200, 100) == [CHILD]
    assert book.deadline(CHILD) == 100


def test_a_child_that_is_given_back_is_forgotten() -> None:
    book = session()
    book.forget(CHILD)
    assert book.deadline(CHILD) == 0
    assert book.renewed("a", 1, [CHILD], 200, 50) == []
