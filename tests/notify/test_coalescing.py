"""Hints that wait are merged, and never many."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.notify.base import Hint
from holdfast.notify.sender import IDS_LIMIT, TYPES_LIMIT, WORKERS_LIMIT, PendingHints

EVERYWHERE = Hint("look", "*")


def merged(*hints: Hint) -> list[Hint]:
    pending = PendingHints()
    pending.add(hints)
    return pending.take()


def test_nothing_waits_at_first_and_after_taking() -> None:
    pending = PendingHints()
    assert not pending
    pending.add([Hint("due", "mail")])
    assert pending
    assert pending.take() == [Hint("due", "mail")]
    assert not pending
    assert pending.take() == []


def test_the_same_hint_waits_once() -> None:
    assert merged(*[Hint("due", "mail")] * 3) == [Hint("due", "mail")]


def test_hints_keep_their_order() -> None:
    assert merged(Hint("due", "b"), Hint("due", "a")) == [Hint("due", "b"), Hint("due", "a")]


def test_a_look_swallows_due_whichever_came_first() -> None:
    assert merged(Hint("due", "mail"), Hint("look", "mail")) == [Hint("look", "mail")]
    assert merged(Hint("look", "mail"), Hint("due", "mail")) == [Hint("look", "mail")]


def test_a_look_everywhere_swallows_all_types() -> None:
    assert merged(Hint("look", "a"), Hint("due", "b"), EVERYWHERE, Hint("look", "c")) == [
        EVERYWHERE
    ]


def test_due_everywhere_swallows_due_and_leaves_looks() -> None:
    hints = merged(Hint("look", "a"), Hint("due", "b"), Hint("due", "*"), Hint("look", "c"))
    assert hints == [Hint("due", "*"), Hint("look", "a"), Hint("look", "c")]


def test_ids_of_one_worker_are_gathered() -> None:
    first, second = (
        Hint("lost", worker="w", ids=("1", "2")),
        Hint("lost", worker="w", ids=("2", "3")),
    )
    assert merged(first, second) == [Hint("lost", worker="w", ids=("1", "2", "3"))]


def test_a_hint_without_ids_means_all_and_swallows_those_with() -> None:
    assert merged(Hint("ended", ids=("1",)), Hint("ended"), Hint("ended", ids=("2",))) == [
        Hint("ended")
    ]
    assert merged(Hint("lost", worker="w", ids=("1",)), Hint("lost")) == [Hint("lost")]


def test_signals_of_all_names_are_one_hint() -> None:
    assert merged(Hint("signal", "approved"), Hint("signal", "paid")) == [Hint("signal")]


def test_a_flood_becomes_wider_hints() -> None:
    assert merged(*(Hint("due", str(n)) for n in range(TYPES_LIMIT + 1))) == [EVERYWHERE]
    assert merged(*(Hint("ended", ids=(str(n),)) for n in range(IDS_LIMIT + 1))) == [Hint("ended")]
    lost = (Hint("lost", worker=str(n), ids=("1",)) for n in range(WORKERS_LIMIT + 1))
    assert merged(*lost) == [Hint("lost")]


def means(hint: Hint, asked: Hint) -> bool:
    """Whether whoever acts on `hint` also does what `asked` wanted."""
    if asked.kind in ("due", "look"):
        strong = hint.kind in ({"due", "look"} if asked.kind == "due" else {"look"})
        return strong and hint.type in (asked.type, "*")
    if hint.kind != asked.kind or hint.worker not in (asked.worker, ""):
        return False
    return not hint.ids or (bool(asked.ids) and set(asked.ids) <= set(hint.ids))


types = st.builds(Hint, st.sampled_from(("due", "look")), st.sampled_from("abc*"))
ids = st.lists(st.sampled_from("12345"), max_size=3).map(tuple)
lost = st.builds(Hint, st.just("lost"), worker=st.sampled_from(("", "v", "w")), ids=ids)
ended = st.builds(Hint, st.sampled_from(("ended", "awaited")), ids=ids)
signals = st.builds(Hint, st.just("signal"), st.sampled_from("ab"))


@given(st.lists(st.one_of(types, lost, ended, signals)))
def test_merging_never_loses_a_meaning(hints: list[Hint]) -> None:
    taken = merged(*hints)
    assert all(any(means(hint, asked) for hint in taken) for asked in hints)
    assert len(taken) <= len(hints)
