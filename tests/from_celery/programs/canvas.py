"""What Celery's page on canvas says: signatures, chains, groups, chords, map and chunks."""

from __future__ import annotations

from decimal import Decimal

from tests.from_celery.programs.shop import Shop, behaviour, values


@behaviour("Canvas", "a signature has the task's name and its arguments")
def _(shop: Shop) -> None:
    made = shop.add.s(2, y=3)
    assert (made.task, made.args, made.kwargs) == ("add", (2,), {"y": 3})


@behaviour("Canvas", "a signature that is called runs here")
def _(shop: Shop) -> None:
    assert shop.sub.s(5, 3)() == 2
    assert shop.sub.s(3)(10) == 7


@behaviour("Canvas", "clone adds arguments before its own")
def _(shop: Shop) -> None:
    made = shop.sub.s(3)
    assert made.clone(args=(10,))() == 7
    assert made.args == (3,)


@behaviour("Canvas", "a signature by a name may be immutable")
def _(shop: Shop) -> None:
    named = shop.app.signature("add", args=(1, 1), immutable=True)
    assert shop.get(shop.celery.chain(shop.add.s(5, 5), named)()) == 2


@behaviour("Canvas", "an immutable signature takes no arguments")
def _(shop: Shop) -> None:
    assert shop.add.si(1, 1)(99) == 2
    assert shop.add.s(1, 1).set(immutable=True)(99) == 2


@behaviour("Canvas", "set changes options and returns the signature")
def _(shop: Shop) -> None:
    made = shop.add.s(1, 1)
    assert made.set(countdown=5) is made
    assert made.options["countdown"] == 5


@behaviour("Canvas", "link returns the callback and links it once")
def _(shop: Shop) -> None:
    made, callback = shop.add.s(2, 2), shop.note.s()
    assert made.link(callback) is callback
    made.link(callback)
    assert made.options["link"] == [callback]
    made.delay()
    assert shop.notes(1) == [(4,)]
    assert shop.settle() == [(4,)]


@behaviour("Canvas", "on_error returns the signature")
def _(shop: Shop) -> None:
    made = shop.fail.s()
    assert made.on_error(shop.on_error_id.s()) is made
    result = shop.end(made.delay())
    assert shop.notes(1) == [result.id]


@behaviour("Canvas", "link_error returns the callback")
def _(shop: Shop) -> None:
    made, callback = shop.fail.s(), shop.note.si("sorry")
    assert made.link_error(callback) is callback
    shop.end(made.delay())
    assert shop.notes(1) == [("sorry",)]


@behaviour("Canvas", "a link of the call replaces that of the signature")
def _(shop: Shop) -> None:
    made = shop.add.s(2, 2)
    made.link(shop.note.s("a"))
    shop.get(made.apply_async(link=shop.note.s("b")))
    assert shop.notes(1) == [(4, "b")]
    assert shop.settle() == [(4, "b")]


values(
    "Canvas",
    {
        "a signature is started with delay": (lambda s: s.sub.s(5, 3).delay(), 2),
        "a signature is started with apply_async": (lambda s: s.sub.s(5, 3).apply_async(), 2),
        "arguments of a partial go first": (lambda s: s.sub.s(3).delay(10), 7),
        "keyword arguments of the call win": (
            lambda s: s.echo.s(a=1, b=1).delay(b=2),
            {"a": 1, "b": 2},
        ),
        "arguments of a partial can be given to apply_async": (
            lambda s: s.sub.s(3).apply_async((10,)),
            7,
        ),
        "a signature can be made by name": (
            lambda s: s.celery.signature("add", (1, 1), app=s.app).delay(),
            2,
        ),
        "a signature can be made of the task": (lambda s: s.add.signature((1, 1)).delay(), 2),
        "a signature of the application": (lambda s: s.app.signature("add", (1, 1)).delay(), 2),
        "a chain hands results on": (
            lambda s: s.celery.chain(s.add.s(2, 2), s.add.s(4), s.add.s(8))(),
            16,
        ),
        "a chain can be written with a bar": (
            lambda s: (s.add.s(2, 2) | s.add.s(4) | s.sub.s(1)).delay(),
            7,
        ),
        "a chain can be given as a list": (
            lambda s: s.celery.chain([s.add.s(2, 2), s.add.s(4)])(),
            8,
        ),
        "a chain may have one task": (lambda s: s.celery.chain(s.add.s(2, 2))(), 4),
        "a chain of immutable tasks hands nothing on": (
            lambda s: s.celery.chain(s.add.si(2, 2), s.add.si(1, 1))(),
            2,
        ),
        "a chain in a chain": (
            lambda s: s.celery.chain(s.add.s(1, 1), s.celery.chain(s.add.s(2), s.add.s(3)))(),
            7,
        ),
        "arguments of a chain are those of its first task": (
            lambda s: s.celery.chain(s.sub.s(1), s.add.s(5)).apply_async((10,)),
            14,
        ),
        "a chain hands a decimal on": (
            lambda s: s.celery.chain(
                s.add.s(Decimal("1.5"), Decimal(1)), s.add.s(Decimal("0.5"))
            )(),
            Decimal("3.0"),
        ),
        "a group returns results in its order": (
            lambda s: s.celery.group(s.add.s(1, 1), s.add.s(2, 2), s.add.s(3, 3))(),
            [2, 4, 6],
        ),
        "a group can be made of a generator": (
            lambda s: s.celery.group(s.add.s(i, i) for i in range(3)).delay(),
            [0, 2, 4],
        ),
        "arguments of a group are those of each task": (
            lambda s: s.celery.group(s.add.s(1), s.add.s(2)).delay(10),
            [11, 12],
        ),
        "a group may have chains": (
            lambda s: s.celery.group(s.add.s(1, 1) | s.add.s(1), s.add.s(5, 5))(),
            [3, 10],
        ),
        "a chord gives its body the results": (
            lambda s: s.celery.chord([s.add.s(1, 1), s.add.s(2, 2)])(s.total.s()),
            6,
        ),
        "a chord can be started with delay": (
            lambda s: s.celery.chord([s.add.s(1, 1), s.add.s(2, 2)], s.total.s()).delay(),
            6,
        ),
        "the body of a chord may be immutable": (
            lambda s: s.celery.chord([s.add.s(1, 1), s.add.s(2, 2)])(s.add.si(5, 5)),
            10,
        ),
        "a group before a task is a chord": (
            lambda s: (s.celery.group(s.add.s(1, 1), s.add.s(2, 2)) | s.total.s()).delay(),
            6,
        ),
        "a group within a chain": (
            lambda s: s.celery.chain(
                s.add.s(1, 1), s.celery.group(s.add.s(1), s.add.s(2)), s.total.s()
            )(),
            7,
        ),
        "a chord is followed by a task": (
            lambda s: s.celery.chain(
                s.celery.group(s.add.s(1, 1), s.add.s(2, 2)), s.total.s(), s.add.s(10)
            )(),
            16,
        ),
        "map calls a task for each item": (lambda s: s.total.map([[1, 2], [3]]).delay(), [3, 3]),
        "starmap calls it with the arguments in each": (
            lambda s: s.sub.starmap([(5, 1), (4, 1)]).apply_async(),
            [4, 3],
        ),
        "starmap takes a zip": (
            lambda s: s.add.starmap(zip(range(3), range(3), strict=True)).delay(),
            [0, 2, 4],
        ),
        "chunks divides the items": (
            lambda s: s.add.chunks(zip(range(5), range(5), strict=True), 2)(),
            [[0, 2], [4, 6], [8]],
        ),
        "chunks can be a group": (
            lambda s: s.add.chunks([(1, 1), (2, 2)], 1).group()(),
            [[2], [4]],
        ),
        "chunks can be started with apply_async": (
            lambda s: s.add.chunks([(1, 1), (2, 2)], 2).apply_async(),
            [[2, 4]],
        ),
    },
)


@behaviour("Canvas", "the parents of a result are those before it")
def _(shop: Shop) -> None:
    result = shop.celery.chain(shop.add.s(2, 2), shop.add.s(4), shop.add.s(8))()
    assert shop.get(result) == 16
    assert shop.get(result.parent) == 8
    assert shop.get(result.parent.parent) == 4
    assert result.parent.parent.parent is None
    assert (result.parent.state, result.parent.successful()) == ("SUCCESS", True)


@behaviour("Canvas", "a parent before an immutable task has its result")
def _(shop: Shop) -> None:
    result = shop.celery.chain(shop.add.s(2, 2), shop.add.si(1, 1))()
    assert (shop.get(result), shop.get(result.parent)) == (2, 4)


@behaviour("Canvas", "a single task has no parent")
def _(shop: Shop) -> None:
    assert shop.add.delay(1, 1).parent is None


@behaviour("Canvas", "the parent of a chord's body is the group")
def _(shop: Shop) -> None:
    result = shop.celery.chord([shop.add.s(1, 1), shop.add.s(2, 2)])(shop.total.s())
    assert shop.get(result) == 6
    assert [shop.get(each) for each in result.parent.results] == [2, 4]


@behaviour("Canvas", "a chain stops at a failure")
def _(shop: Shop) -> None:
    result = shop.celery.chain(shop.fail.s(), shop.note.si("after"))()
    assert isinstance(shop.error(result), ValueError)
    assert (result.state, shop.settle()) == ("FAILURE", [])


@behaviour("Canvas", "the failed task of a chain is a parent")
def _(shop: Shop) -> None:
    result = shop.celery.chain(shop.fail.s("first"), shop.add.s(1))()
    shop.error(result)
    assert (result.parent.state, str(result.parent.result)) == ("FAILURE", "first")


@behaviour("Canvas", "a link of a chain is given its last result")
def _(shop: Shop) -> None:
    made = shop.celery.chain(shop.add.s(2, 2), shop.add.s(4))
    made.link(shop.note.s())
    made.delay()
    assert shop.notes(1) == [(8,)]


@behaviour("Canvas", "a link can be given when a chain is started")
def _(shop: Shop) -> None:
    shop.celery.chain(shop.add.s(2, 2), shop.add.s(4)).apply_async(link=shop.note.s())
    assert shop.notes(1) == [(8,)]


@behaviour("Canvas", "on_error of a chain is called whichever task fails")
def _(shop: Shop) -> None:
    for parts in ([shop.fail.s(), shop.add.s(1)], [shop.add.s(1, 1), shop.fail.si()]):
        made = shop.celery.chain(*parts).on_error(shop.note.si("sorry"))
        shop.error(made.delay())
    assert shop.notes(2) == [("sorry",), ("sorry",)]


@behaviour("Canvas", "the result of a group has its length, items and order")
def _(shop: Shop) -> None:
    result = shop.celery.group(shop.add.s(1, 1), shop.add.s(2, 2))()
    shop.get(result)
    assert len(result) == 2
    assert [each.get(timeout=10) for each in result] == [2, 4]
    assert result[1].get(timeout=10) == 4
    assert result.children == result.results


@behaviour("Canvas", "the result of a group counts what has completed")
def _(shop: Shop) -> None:
    result = shop.celery.group(shop.add.s(1, 1), shop.fail.s())()
    shop.get(result, propagate=False)
    assert result.completed_count() == 1
    assert (result.ready(), result.waiting()) == (True, False)
    assert (result.failed(), result.successful()) == (True, False)


@behaviour("Canvas", "a group that is done is successful")
def _(shop: Shop) -> None:
    result = shop.celery.group(shop.add.s(1, 1), shop.add.s(2, 2))()
    assert shop.get(result) == [2, 4]
    assert (result.successful(), result.failed(), result.completed_count()) == (True, False, 2)


@behaviour("Canvas", "get of a group raises what a task raised")
def _(shop: Shop) -> None:
    assert isinstance(shop.error(shop.celery.group(shop.add.s(1, 1), shop.fail.s())()), ValueError)


@behaviour("Canvas", "join waits as get does")
def _(shop: Shop) -> None:
    result = shop.celery.group(shop.add.s(1, 1), shop.add.s(2, 2))()
    shop.get(result)
    assert result.join(timeout=10) == [2, 4]


@behaviour("Canvas", "a group that was saved is restored by its id")
def _(shop: Shop) -> None:
    result = shop.celery.group(shop.add.s(1, 1), shop.add.s(2, 2))()
    result.save()
    shop.get(result)
    kind = shop.side.module("result").GroupResult
    again = kind.restore(result.id, app=shop.app)
    assert again.id == result.id
    assert again.get(timeout=10) == [2, 4]
    again.delete()
    assert kind.restore(result.id, app=shop.app) is None


@behaviour("Canvas", "a group that was never saved is nothing")
def _(shop: Shop) -> None:
    kind = shop.side.module("result").GroupResult
    assert kind.restore("11111111-2222-3333-4444-555555555555", app=shop.app) is None


@behaviour("Canvas", "skew gives each task of a group a countdown")
def _(shop: Shop) -> None:
    made = shop.celery.group(shop.add.s(i, i) for i in range(4))
    made.skew(start=1, stop=10)
    assert [each.options["countdown"] for each in made.tasks] == [1, 2, 3, 4]


@behaviour("Canvas", "skew ends at its stop, which the last tasks share")
def _(shop: Shop) -> None:
    for stop, expected in ((3, [1, 2, 3, 3]), (2.5, [1, 2, 2, 2]), (0, [1, 2, 3, 4])):
        made = shop.celery.group(shop.add.s(i, i) for i in range(4))
        made.skew(start=1, stop=stop)
        assert [each.options["countdown"] for each in made.tasks] == expected


@behaviour("Canvas", "the body of a chord is not run when a task of the header fails")
def _(shop: Shop) -> None:
    result = shop.celery.chord([shop.add.s(1, 1), shop.fail.s()])(shop.note.s())
    shop.end(result)
    assert type(result.result).__name__ == "ChordError"
    assert (result.state, shop.settle()) == ("FAILURE", [])


@behaviour("Canvas", "an error link of the body is started when a task of the header fails")
def _(shop: Shop) -> None:
    body = shop.note.s().on_error(shop.on_error_id.s())
    result = shop.celery.chord([shop.add.s(1, 1), shop.fail.s()])(body)
    shop.error(result)
    assert shop.notes(1) == [result.id]


@behaviour("Canvas", "on_error of a chord is that of its body")
def _(shop: Shop) -> None:
    made = shop.celery.chord([shop.add.s(1, 1)], shop.fail.si()).on_error(shop.note.si("sorry"))
    shop.error(made.delay())
    assert shop.notes(1) == [("sorry",)]


@behaviour("Canvas", "a link of a group is started by its first task, without a result")
def _(shop: Shop) -> None:
    made = shop.celery.group(shop.add.s(1, 1), shop.add.s(2, 2))
    made.link(shop.note.s("linked"))
    shop.get(made())
    assert shop.notes(1) == [("linked",)]
    assert shop.settle() == [("linked",)]


@behaviour("Canvas", "an error link of a group is started by each task that fails")
def _(shop: Shop) -> None:
    made = shop.celery.group(shop.fail.s("a"), shop.add.s(2, 2), shop.fail.s("b"))
    made.link_error(shop.on_error.s())
    shop.get(made(), propagate=False)
    assert sorted(text for _, _, _, text, _ in shop.notes(2)) == ["a", "b"]


values(
    "Canvas",
    {
        "a group of one within a chain is its task": (
            lambda s: s.celery.chain(s.add.s(2, 2), s.celery.group(s.add.s(1)), s.add.s(1))(),
            6,
        ),
        "a group of one that begins a chain is its task": (
            lambda s: s.celery.chain(s.celery.group(s.add.s(1, 1)), s.add.s(2))(),
            4,
        ),
        "a group of one that ends a chain is its task": (
            lambda s: s.celery.chain(s.add.s(1, 1), s.celery.group(s.add.s(2)))(),
            4,
        ),
        "a group of one before a bar hands on a list": (
            lambda s: (s.celery.group(s.add.s(1, 1)) | s.echo.s()).delay(),
            [2],
        ),
        "a group of one between bars is its task": (
            lambda s: (s.add.s(1, 1) | s.celery.group(s.add.s(1)) | s.echo.s()).delay(),
            3,
        ),
        "a chord of one hands on a list": (
            lambda s: s.celery.chord([s.add.s(1, 1)])(s.total.s()),
            2,
        ),
        "a chain may be partial": (lambda s: (s.sub.s(4) | s.add.s(8))(16), 20),
        "chains can be combined": (
            lambda s: (s.add.s(4, 16) | s.sub.s(2) | (s.add.s(4) | s.sub.s(8)))(),
            14,
        ),
        "a chord is followed by a task with a bar": (
            lambda s: (
                s.celery.chord([s.add.s(1, 1), s.add.s(1, 1)], s.total.s()) | s.add.s(5)
            ).delay(),
            9,
        ),
        "groups in a group run side by side": (
            lambda s: s.celery.group(s.celery.group(s.add.s(1, 1)), s.add.s(2, 2))(),
            [2, 4],
        ),
        "a chord may be part of a chord": (
            lambda s: s.celery.chord([s.celery.chord([s.add.s(1, 1)], s.total.s()), s.add.s(1, 1)])(
                s.total.s()
            ),
            4,
        ),
        "options of the call win": (
            lambda s: s.add.signature((2, 2), countdown=3600).apply_async(countdown=0),
            4,
        ),
        "map may be part of a group": (
            lambda s: s.celery.group(s.total.map([[1, 2]]), s.add.s(1, 1))(),
            [[3], 2],
        ),
        "starmap takes the options of a call": (
            lambda s: s.add.starmap([(1, 1)]).apply_async(countdown=0),
            [2],
        ),
    },
)


@behaviour("Canvas", "a signature has fields to look at")
def _(shop: Shop) -> None:
    made = shop.add.signature((2, 2), {"debug": True}, countdown=10)
    assert (made.args, made.kwargs, made.options) == ((2, 2), {"debug": True}, {"countdown": 10})
    assert (made.name, made.type.name) == ("add", "add")


@behaviour("Canvas", "a signature by name has options, too")
def _(shop: Shop) -> None:
    made = shop.celery.signature("add", args=(2, 2), countdown=10)
    assert (made.args, made.options, repr(made)) == ((2, 2), {"countdown": 10}, "add(2, 2)")


@behaviour("Canvas", "a canvas is shown as it was written")
def _(shop: Shop) -> None:
    chain, group = shop.celery.chain, shop.celery.group
    assert repr(chain(shop.add.s(4, 4), shop.add.s(8))) == "add(4, 4) | add(8)"
    assert repr(group(shop.add.s(4, 4), shop.add.s(8, 1))) == "group((add(4, 4), add(8, 1)))"


@behaviour("Canvas", "the parent of a group at the end of a chain is the task before it")
def _(shop: Shop) -> None:
    group = shop.celery.group(shop.add.si(i, i) for i in range(3))
    result = (shop.add.s(4, 4) | group)()
    assert (shop.get(result), shop.get(result.parent)) == ([0, 2, 4], 8)


@behaviour("Canvas", "an immutable signature keeps its arguments when it is cloned")
def _(shop: Shop) -> None:
    assert shop.add.si(1, 1).clone(args=(9,)).args == (1, 1)


@behaviour("Canvas", "chunks as a group can be skewed")
def _(shop: Shop) -> None:
    made = shop.add.chunks([(1, 1), (2, 2)], 1).group().skew(start=1, stop=10)
    assert [each.options["countdown"] for each in made.tasks] == [1, 2]
