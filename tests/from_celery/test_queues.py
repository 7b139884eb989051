"""Queues of Celery's: job types by queue, chosen by decorator, routes or call, and workers of one queue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from holdfast.cli.worker import select_types
from holdfast.errors import InvalidOption
from holdfast_celery import Celery, CeleryTask, chain
from holdfast_celery.errors import CeleryUnsupported
from holdfast_testing.kit import Kit


@pytest.fixture
def app(any_url: str) -> Iterator[Celery]:
    """An application with queues."""
    with closing(Celery("shop", url=any_url)) as made:
        made.conf.update(
            task_queues=["slow"],
            task_routes=[
                {"video.*": {"queue": "video"}, re.compile(r"feed\..*"): "feeds"},
                lambda name, args, kwargs, options, task=None, **_: (
                    {"queue": "slow"} if args == [13] else None
                ),
            ],
        )
        made.migrate()
        yield made


def task(app: Celery, name: str, **options: Any) -> CeleryTask:
    """A task that returns what it is given."""

    def echo(value: Any = None) -> Any:
        return value

    return app.task(name=name, **options)(echo)


def types(app: Celery) -> list[str]:
    """The job types of what was started, in order."""
    return [each.type for each in app.jobs.list()][::-1]


def test_a_queue_comes_from_the_call_the_decorator_or_a_route(app: Celery) -> None:
    mail, clip = task(app, "send", queue="mail"), task(app, "video.clip")
    feed, plain = task(app, "feed.read"), task(app, "plain")
    mail.delay()
    clip.delay()
    feed.delay()
    plain.delay()
    plain.delay(13)
    clip.apply_async(queue="slow")
    mail.apply_async(queue="celery")
    mail.s().set(queue="feeds").delay()
    app.send_task("plain", queue="video")
    assert types(app) == [
        *("mail:send", "video:video.clip", "feeds:feed.read", "plain", "slow:plain"),
        *("slow:video.clip", "send", "feeds:send", "video:plain"),
    ]


@pytest.mark.parametrize(
    "routes",
    [
        {"video.*": "slow", "video.clip": "fast", "video.cli?": "none"},
        ([("video.*", {"queue": "slow"}), ("video.clip", {"queue": "fast"})],),
        [{"video.clip": "fast"}, {"video.*": "slow"}],
    ],
    ids=["mapping", "pairs", "mappings"],
)
def test_a_route_by_name_counts_before_patterns_as_in_celery(any_url: str, routes: Any) -> None:
    with closing(Celery("shop", url=any_url)) as app:
        app.conf.update(task_routes=routes)
        app.migrate()
        for name in ("video.clip", "video.cut", "video.clip.x"):
            task(app, name).delay()
        assert types(app) == ["fast:video.clip", "slow:video.cut", "slow:video.clip.x"]


def test_a_route_may_be_a_pair_with_a_regular_expression(any_url: str) -> None:
    """As in the guide to routing of Celery's documentation."""
    with closing(Celery("shop", url=any_url)) as app:
        media = (re.compile(r"(feed|image)\..*"), {"queue": "media"})
        app.conf.task_routes = ([("video.*", {"queue": "video"}), media],)
        app.migrate()
        for name in ("video.clip", "feed.read"):
            task(app, name).delay()
        assert types(app) == ["video:video.clip", "media:feed.read"]


def test_tasks_of_every_queue_run_and_a_chain_crosses_them(app: Celery, any_url: str) -> None:
    mail, plain = task(app, "send", queue="mail", rate_limit="100/s"), task(app, "plain")
    result = chain(plain.s("hello"), mail.s(), plain.s().set(queue="slow"))()
    with closing(Kit(app, any_url)) as kit:
        kit.run_until_idle()
        assert result.get(timeout=1) == "hello"
    assert [each.type for each in app.chains.jobs(result.id)] == [
        "plain",
        "mail:send",
        "slow:plain",
    ]


def test_a_worker_serves_one_queue(app: Celery) -> None:
    task(app, "send", queue="mail")
    task(app, "plain")
    found = set(select_types(app, "mail:*"))
    assert found >= {"mail:plain", "mail:send"}  # and tasks that other tests share
    assert all(each.startswith("mail:") for each in found)


def test_a_queue_of_a_beat_entry_has_its_effect(app: Celery, any_url: str) -> None:
    task(app, "plain")
    app.conf.beat_schedule = {
        "often": {"task": "plain", "schedule": 60.0, "options": {"queue": "slow"}}
    }
    with closing(Kit(app, any_url)) as kit:
        kit.run_cycle("often")
        assert types(app) == ["slow:plain"]


def test_a_queue_that_no_worker_would_serve_is_refused(app: Celery) -> None:
    plain = task(app, "plain")
    with pytest.raises(CeleryUnsupported, match="'fast' is in no setting") as refused:
        plain.apply_async(queue="fast")
    assert "task_queues = ['fast', …]" in refused.value.help
    with pytest.raises(InvalidOption, match="cannot be part"):
        app.task(name="bad", queue="a:b")(print)
    with pytest.raises(CeleryUnsupported, match="set after tasks were looked up"):
        app.conf.task_queues = ["fast"]


def test_a_default_queue_has_the_bare_names(any_url: str) -> None:
    with closing(Celery("shop", url=any_url)) as app:
        app.conf.task_default_queue = "main"
        app.migrate()
        task(app, "plain", queue="main").delay()
        assert types(app) == ["plain"]
