"""What of Celery the look-alikes cover, and what to write instead of the rest: one table, read at run time and by
`holdfast migrate-from celery`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Self

from holdfast.core.errors import nearest
from holdfast_celery.errors import CeleryUnsupported

Kind = Literal[
    "application argument",
    "setting",
    "task option",
    "call option",
    "route option",
    "retry option",
    "application attribute",
    "control attribute",
    "control argument",
    "task attribute",
    "request attribute",
    "result attribute",
    "result argument",
    "group result attribute",
    "signature attribute",
    "import",
]
"""Where in a program a feature is found."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One thing that Celery offers: covered, with what it does here, or not, with what to write instead.

    One that is removable has nothing here that it could change: it is left out, and nothing takes its place.
    """

    kind: Kind
    name: str
    is_covered: bool
    text: str
    is_removable: bool = False


def _cover(kind: Kind, **texts: str) -> list[Feature]:
    return [Feature(kind, name, True, text) for name, text in texts.items()]


def _refuse(kind: Kind, **texts: str) -> list[Feature]:
    return [Feature(kind, name, False, text) for name, text in texts.items()]


def _remove(kind: Kind, **texts: str) -> list[Feature]:
    return [Feature(kind, name, False, text, is_removable=True) for name, text in texts.items()]


def _remove_families(kind: Kind, **texts: str) -> list[Feature]:
    return [
        Feature(kind, f"{name}_*", False, text, is_removable=True) for name, text in texts.items()
    ]


_TYPES = "set it in the task's decorator, in task_routes or for the call"
_DATABASE = "the database is both: set url=, or HOLDFAST_URL, and remove it"
_MIDDLEWARE = "write an @app.middleware, which wraps every attempt"
_TASK_CLASS = "write app.Task = YourTask, a class derived from holdfast_celery.Task"
_BASE = (
    "write a base class with this method, derived from holdfast_celery.Task, and pass it as base="
)
_OBSERVER = "give app.observe(…) an observer; it receives every event after its commit"
_TEST_KIT = "use the test kit: holdfast.run_until_idle() runs what was started, on a real database"
_JSON = "payloads are JSON; remove it"
_SLOTS = "set it at the worker: `holdfast worker APP --slots N`"
_RETENTION = "results are kept with their jobs; set HOLDFAST_RETENTION_DAYS"
_MAP = "call it of the task: task.map(items), task.starmap(items) or task.chunks(items, n)"
_JOB = "self.request.job is the Holdfast job: it has the attempt, key, lease and blockers"
_JOIN = "blockers do it: chord(header, body) starts the body once, after the last of the header"
_PROGRESS = "call self.request.job.progress(0.4, note); dashboard and API show it"
_RATE = "set rate_limit in each task's decorator"
_WORKERS = "use `holdfast workers` and the dashboard; cancel a task with result.revoke()"
_ROUTING = (
    "there is no broker to route in: name a queue, and run `holdfast worker APP --types 'mail:*'`"
)
_SOFT = (
    "threads cannot be interrupted: use time_limit, and call self.request.job.checkpoint() in loops"
)
_EACH = "go through results and ask each of them"
_LENGTHS = (
    "there is no broker: how long queues are is in `holdfast types` and the metrics; in code, "
    "len(app.jobs.list('state:pending type:mail:*', limit=100))"
)
_NO_BROKER = "there is no broker; remove it"
_NO_BACKEND = "results are in your database; remove it"
_NO_BEAT = "there is no beat process: workers run the cycles; remove it"
_LOGGING = "the worker leaves your logging alone; remove it"
_LEAKS = 'for leaky code, use @app.job(…, executor="process")'
_NO_MESSAGES = (
    "there are no messages: a job whose input cannot be read waits, and `holdfast doctor` names it"
)
_THREADS = "tasks run in threads: connect worker_process_init for what each process needs"
_LOGGERS = "connect setup_logging, or set up logging where the application is made"
_CYCLES = "there is no beat process: workers run the cycles"
_CHILDREN = "a chain is one record: `holdfast chains show ID` lists its jobs"

FEATURES: tuple[Feature, ...] = (
    *_cover(
        "application argument",
        main="the application's name, for tasks of a module run as __main__",
        include="modules to import before tasks are looked up",
    ),
    *_cover(
        "application argument",
        url="Holdfast's own: the database; without it, HOLDFAST_URL",
        schema="Holdfast's own: the schema of its tables",
        notifier="Holdfast's own: how workers are woken",
        hints="Holdfast's own: whether they are",
        highest_priority="Holdfast's own: 9 is RabbitMQ's order of priorities, 0 is that of Redis",
    ),
    *_remove(
        "application argument",
        broker=_DATABASE,
        backend=_DATABASE,
        set_as_current="the newest application is the current one; remove it",
        autofinalize="there is nothing to finalize; remove it",
        strict_typing="arguments are always checked when a task is started; remove it",
    ),
    *_refuse(
        "application argument",
        config_source="call app.config_from_object(…)",
        changes="call app.conf.update(…)",
        task_cls=_TASK_CLASS,
        namespace="pass it to app.config_from_object(…)",
        loader="write the settings in your own module, and call app.config_from_object(…)",
        amqp=_ROUTING,
        events=_OBSERVER,
        log=_LOGGING,
        control="app.control has revoke, ping and inspect()",
        tasks="tasks are registered by their decorators",
        fixups="Django needs no fixup here; remove it",
    ),
    *_cover(
        "setting",
        beat_schedule="each entry becomes a cycle, which starts its task once per slot",
        timezone="the zone of crontab schedules",
        enable_utc="True: times are kept in UTC",
        imports="modules to import before tasks are looked up",
        include="modules to import before tasks are looked up",
        task_time_limit="the timeout of every task without a time_limit",
        worker_concurrency="the slots of a worker, unless --slots or HOLDFAST_SLOTS says how many",
        task_default_priority="the priority of tasks without one",
        task_ignore_result="whether results of tasks without ignore_result are dropped",
        task_routes="the queue of tasks by name, pattern or function",
        task_queues="the names of queues that calls may choose",
        task_default_queue="the queue whose job types have the bare names of their tasks",
        task_always_eager="runs tasks in the caller, without the database, for tests",
        task_eager_propagates="whether those raise what a task raises",
        task_acks_late="True: always the case",
        task_reject_on_worker_lost="True: always the case",
        task_track_started="True: always the case",
        task_store_errors_even_if_ignored="True: always the case",
        task_send_sent_event="True: always the case; the dashboard and app.observe(…) get events",
        worker_send_task_events="True: always the case; the dashboard and app.observe(…) get events",
        worker_hijack_root_logger="False: always the case",
        broker_connection_retry="True: always the case, for the database",
        broker_connection_retry_on_startup="True: always the case, for the database",
        result_extended="True: always the case",
        task_serializer="json: always the case",
        result_serializer="json: always the case",
        accept_content="['json']: always the case",
    ),
    *_remove(
        "setting",
        result_backend=_DATABASE,
        broker_transport_options="leases are renewed while a task runs: there is no visibility timeout; remove it",
        worker_prefetch_multiplier="workers claim what they have slots for; remove it",
        worker_disable_prefetch="workers claim what they have slots for; remove it",
        worker_enable_prefetch_count_reduction="workers claim what they have slots for; remove it",
        worker_cancel_long_running_tasks_on_connection_loss="tasks go on while the database is away; remove it",
        worker_deduplicate_successful_tasks="a task that has completed is not run again; remove it",
        worker_detect_quorum_queues=_NO_BROKER,
        worker_direct=_NO_BROKER,
        worker_enable_remote_control=_NO_BROKER,
        worker_eta_task_limit="tasks with an eta wait in the database; remove it",
        worker_log_color=_LOGGING,
        worker_lost_wait="leases end by the database's clock; remove it",
        worker_pool_putlocks="workers claim what they have slots for; remove it",
        worker_pool_restarts=_NO_BROKER,
        worker_proc_alive_timeout="tasks run in threads; remove it",
        worker_redirect_stdouts="what tasks print goes to the worker's stdout; remove it",
        worker_redirect_stdouts_level="what tasks print goes to the worker's stdout; remove it",
        worker_state_db="revoked tasks are kept in the database; remove it",
        worker_timer="there is no timer to choose; remove it",
        worker_timer_precision="there is no timer to choose; remove it",
        beat_schedule_filename="cycles are kept in the database; remove it",
        beat_sync_every="cycles are kept in the database; remove it",
        beat_max_loop_interval=_NO_BEAT,
        task_create_missing_queues=_NO_BROKER,
        task_create_missing_queue_type=_NO_BROKER,
        task_create_missing_queue_exchange_type=_NO_BROKER,
        task_default_delivery_mode=_NO_BROKER,
        task_default_queue_type=_NO_BROKER,
        task_default_exchange=_NO_BROKER,
        task_default_exchange_type=_NO_BROKER,
        task_default_routing_key=_NO_BROKER,
        task_protocol=_NO_BROKER,
        task_publish_retry="a start is part of your transaction; remove it",
        task_publish_retry_policy="a start is part of your transaction; remove it",
        task_queue_max_priority="there are ten priorities; remove it",
        task_remote_tracebacks="result.traceback has the stack; remove it",
        result_accept_content=_JSON,
        result_backend_always_retry=_NO_BACKEND,
        result_backend_base_sleep_between_retries_ms=_NO_BACKEND,
        result_backend_max_retries=_NO_BACKEND,
        result_backend_max_sleep_between_retries_ms=_NO_BACKEND,
        result_backend_transport_options=_NO_BACKEND,
        result_cache_max=_NO_BACKEND,
        result_chord_join_timeout="a chord's body waits in the database; remove it",
        result_chord_retry_interval="a chord's body waits in the database; remove it",
        result_compression=_NO_BACKEND,
        result_exchange=_NO_BACKEND,
        result_exchange_type=_NO_BACKEND,
        result_persistent=_NO_BACKEND,
    ),
    *_remove_families(
        "setting",
        broker=_DATABASE,
        control=_NO_BROKER,
        event="the dashboard and app.observe(…) get events from the database; remove it",
        arangodb=_NO_BACKEND,
        azureblockblob=_NO_BACKEND,
        cache=_NO_BACKEND,
        cassandra=_NO_BACKEND,
        cosmosdbsql=_NO_BACKEND,
        couchbase=_NO_BACKEND,
        database=_NO_BACKEND,
        dynamodb=_NO_BACKEND,
        elasticsearch=_NO_BACKEND,
        gcs=_NO_BACKEND,
        mongodb=_NO_BACKEND,
        redis=_NO_BACKEND,
        s3=_NO_BACKEND,
    ),
    *_refuse(
        "setting",
        result_expires=_RETENTION,
        task_soft_time_limit=_SOFT,
        task_annotations="set the options in each task's decorator",
        task_compression="payloads are stored as they are; keep large ones in files and pass their key",
        task_default_rate_limit=_RATE,
        task_acks_on_failure="a task that fails is final, with or without acks_late: redrive it from the dead letters",
        task_acks_on_timeout="a task that times out fails, and is tried again if it has retries; remove it",
        task_acks_on_failure_or_timeout="a task that fails is final: redrive it from the dead letters",
        task_allow_error_cb_on_chord_header="give link_error to the tasks of the header",
        task_inherit_parent_priority="set the priority of each task",
        task_store_eager_result="eager results are with their caller; the test kit runs tasks on a real database",
        worker_max_tasks_per_child=_LEAKS,
        worker_max_memory_per_child=_LEAKS,
        worker_pool="tasks run in threads; for CPU-bound ones use @app.job(…, executor='process')",
        worker_agent=_WORKERS,
        worker_autoscaler="run more or fewer workers: the depth of queues is a metric",
        worker_consumer=_MIDDLEWARE,
        worker_disable_rate_limits="leave rate_limit out of the decorators",
        worker_log_format="configure logging yourself, or see `holdfast worker --help` for its log",
        worker_task_log_format="configure logging yourself, or see `holdfast worker --help` for its log",
        worker_soft_shutdown_timeout="set HOLDFAST_WORKER_SHUTDOWN_TIMEOUT_MS",
        worker_enable_soft_shutdown_on_idle="a worker that stops waits for its tasks; remove it",
        beat_scheduler="remove it; what django-celery-beat has kept is imported by `holdfast migrate-from celery-beat`",
        beat_cron_starting_deadline="a cycle that was missed is caught up once; use @app.cycle(…, missed=…)",
        task_cls=_TASK_CLASS,
        security_certificate="seal arguments and results instead: sealed=True in the decorator",
        security_cert_store="seal arguments and results instead: sealed=True in the decorator",
        security_key="seal arguments and results instead: sealed=True in the decorator",
        security_key_password="seal arguments and results instead: sealed=True in the decorator",
        security_digest="seal arguments and results instead: sealed=True in the decorator",
    ),
    *_cover(
        "task option",
        name="the task's name, and its job type's",
        bind="the task is the first argument: self.request, self.retry",
        max_retries="retries after the first attempt; None is endless",
        default_retry_delay="seconds before a retry",
        autoretry_for="errors that are retried; others fail the task immediately",
        dont_autoretry_for="errors that are not retried even if autoretry_for names their base class",
        retry_backoff="exponential delays: True, or the first delay in seconds",
        retry_backoff_max="the longest delay in seconds",
        retry_jitter="random delays up to the backoff",
        retry_kwargs="max_retries and countdown of autoretry_for",
        acks_late="True: always the case",
        reject_on_worker_lost="True: always the case",
        track_started="True: always the case",
        ignore_result="the result is dropped, unless another task of a chain takes it",
        base="a class with hooks, derived from holdfast_celery.Task",
        priority="the default priority of this task",
        queue="its queue: its job type is `mail:NAME`, for `holdfast worker APP --types 'mail:*'`",
        expires="the default of expires for this task",
        time_limit="the task's timeout",
        rate_limit="how many can start per second, minute or hour, across all workers",
        throws="errors that the worker logs as information",
        serializer="json: always the case",
        sealed="Holdfast's own: True stores arguments and results encrypted",
    ),
    *_refuse(
        "task option",
        soft_time_limit=_SOFT,
        routing_key=_ROUTING,
        exchange=_ROUTING,
        compression="payloads are stored as they are; keep large ones in files and pass their key",
        pydantic="take a pydantic model as the input of an @app.job; it is validated on both sides",
        send_events=_OBSERVER,
        trail=_CHILDREN,
        acks_on_failure="a task that fails is final: redrive it from the dead letters",
        acks_on_timeout="a task that times out fails, and is tried again if it has retries; remove it",
        acks_on_failure_or_timeout="a task that fails is final: redrive it from the dead letters",
        backend=_DATABASE,
        on_failure=_BASE,
        on_success=_BASE,
        on_retry=_BASE,
    ),
    *_remove(
        "task option",
        typing="arguments are always checked when a task is started; remove it",
        shared="tasks of shared_task are in every application; remove it",
        lazy="tasks are registered when their module is imported; remove it",
        store_errors_even_if_ignored="errors are always kept; remove it",
        resultrepr_maxsize="the dashboard shortens what it shows; remove it",
    ),
    *_cover(
        "call option",
        args="positional arguments",
        kwargs="keyword arguments",
        countdown="seconds before it may run",
        eta="when it may run: a datetime with a time zone",
        expires="seconds, or a datetime with a time zone; a task not begun by then is cancelled",
        priority="0 to 9, as Celery's Redis transport has it: 0 is the most urgent (see highest_priority)",
        task_id="the deduplication key: while the first is not finished, a second start joins it",
        queue="a queue that settings or decorators name",
        headers="values that the task finds in self.request.headers",
        max_retries="no effect, as in Celery: set it in the task's decorator, or in self.retry",
        link="what to start with the result, in the transaction that completes the task",
        link_error="what to start with the error, in the transaction that fails the task",
        ignore_result="whether the result is dropped, instead of what the decorator says",
        serializer="json: always the case",
    ),
    *_cover("route option", queue="the queue"),
    *_refuse(
        "route option",
        routing_key=_ROUTING,
        exchange=_ROUTING,
        priority="set it in the task's decorator",
    ),
    *_refuse(
        "call option",
        routing_key=_ROUTING,
        exchange=_ROUTING,
        compression="payloads are stored as they are; keep large ones in files and pass their key",
        shadow="the dashboard shows the task's name and its arguments",
        time_limit="set it in the task's decorator",
        soft_time_limit=_SOFT,
        connection="write `with app.using(tx):` to start it in your own transaction",
        producer="write `with app.using(tx):` to start it in your own transaction",
        add_to_parent=_CHILDREN,
        chord=_JOIN,
        root_id="self.request.root_id is the chain's id",
        parent_id=_CHILDREN,
        group_id=_CHILDREN,
        stamped_headers="pass it as an argument",
    ),
    *_remove(
        "call option",
        retry="a start is part of your transaction; remove it",
        retry_policy="a start is part of your transaction; remove it",
    ),
    *_cover(
        "retry option",
        exc="the error to fail with when no retry is left",
        max_retries="instead of the decorator's",
        countdown="seconds before the retry",
        eta="when to retry: a datetime with a time zone",
    ),
    *_refuse(
        "retry option",
        args="start another task with other arguments: return holdfast.Continue(…)",
        kwargs="start another task with other arguments: return holdfast.Continue(…)",
        queue=_TYPES,
        throw="write `raise self.retry(…)`",
        time_limit="set it in the task's decorator",
    ),
    *_cover(
        "application attribute",
        task="the decorator",
        conf="its settings",
        send_task="starts a task by its name",
        signature="a signature by a task's name",
        AsyncResult="a result by its id",
        autodiscover_tasks="imports the tasks modules of packages before tasks are looked up",
        config_from_object="reads settings, but not those of brokers and backends; ignore= names others to skip",
        add_periodic_task="adds a cycle",
        on_after_configure="connect(function): called before tasks are looked up",
        on_after_finalize="connect(function): called before tasks are looked up",
        tasks="the tasks by name",
        main="the application's name",
        control="revoke, ping and inspect()",
        loader="import_default_modules() looks tasks up",
        Task="the class of tasks without base=, which may be set, and what base classes are derived from",
    ),
    *_refuse(
        "application attribute",
        events=_OBSERVER,
        worker_main="run `holdfast worker APP`",
        Worker="run `holdfast worker APP`",
        Beat="there is no beat process: workers run the cycles",
        register_task="decorate the function with @app.task",
        user_options="write your own command",
        steps=_MIDDLEWARE,
        amqp=_ROUTING,
        backend=_DATABASE,
        connection=_LENGTHS,
        broker_connection=_LENGTHS,
        finalize="there is nothing to finalize; remove it",
        set_current="the newest application is the current one; remove it",
        set_default="the newest application is the current one; remove it",
        current_task="use bind=True and self",
        current_worker_task="use bind=True and self",
        GroupResult="from holdfast_celery.result import GroupResult",
        ResultSet="keep the results in a list",
        add_defaults="call app.conf.update(…)",
        bugreport="run `holdfast doctor`",
        config_from_cmdline="call app.config_from_object(…)",
        config_from_envvar="call app.config_from_object(os.environ[…])",
        connection_for_read=_LENGTHS,
        connection_for_write=_LENGTHS,
        connection_or_acquire=_LENGTHS,
        gen_task_name="set name= in the decorator",
        log=_LOGGERS,
        now="call datetime.now(UTC)",
        oid=_NO_BROKER,
        on_after_fork=_THREADS,
        on_configure="connect on_after_configure",
        pool=_NO_BROKER,
        producer_or_acquire=_NO_BROKER,
        producer_pool=_NO_BROKER,
        select_queues="run `holdfast worker APP --types 'mail:*'`",
        setup_security="seal arguments and results instead: sealed=True in the decorator",
        timezone="app.conf.timezone is its name",
    ),
    *_cover(
        "control attribute",
        revoke="cancels tasks by their ids",
        terminate="the same",
        ping="an answer for each worker that lives",
        inspect="ping(), active(), registered() and stats() of workers",
        active="the tasks that workers run",
        registered="the names of the tasks that workers know",
        stats="pid, uptime and pool.max-concurrency of workers",
    ),
    *_refuse(
        "control attribute",
        broadcast=_WORKERS,
        purge="run `holdfast jobs cancel FILTER`",
        rate_limit=_RATE,
        time_limit="set it in the task's decorator",
        add_consumer=_ROUTING,
        cancel_consumer=_ROUTING,
        shutdown="run `holdfast workers drain ID`",
        pool_grow=_SLOTS,
        pool_shrink=_SLOTS,
        autoscale=_SLOTS,
        enable_events=_OBSERVER,
        scheduled=_WORKERS,
        reserved="workers claim what they have slots for: see `holdfast jobs list state:pending`",
        revoked="run `holdfast jobs list state:cancelled`",
        conf=_WORKERS,
        active_queues="run `holdfast workers`",
        clock=_NO_BROKER,
        disable_events=_OBSERVER,
        discard_all="run `holdfast jobs cancel FILTER`",
        election="@app.cycle runs once for all workers",
        heartbeat="`holdfast workers` and app.workers.list() have the heartbeats",
        hello=_WORKERS,
        memdump=_WORKERS,
        memsample=_WORKERS,
        objgraph=_WORKERS,
        pool_restart="restart the worker",
        query_task="ask app.AsyncResult(id)",
        registered_tasks="call registered()",
        report=_WORKERS,
        revoke_by_stamped_headers="run `holdfast jobs cancel FILTER`",
    ),
    *_cover(
        "control argument",
        terminate="True cancels also tasks that run",
        signal="no effect: there is no process of a task's own to send it to",
        destination="no effect for revoke: no worker runs a task that was cancelled",
        timeout="no effect: the database answers",
    ),
    *_refuse(
        "control argument",
        reply="app.AsyncResult(id).state says what became of it",
        callback="app.AsyncResult(id).state says what became of it",
        connection="write `with app.using(tx):` to do it in your own transaction",
        limit="every task is cancelled that is named",
        pattern=_WORKERS,
        matcher=_WORKERS,
    ),
    *_cover(
        "task attribute",
        delay="starts it",
        apply_async="starts it with options",
        apply="runs it in the caller, with its retries",
        before_start="a hook for base classes",
        on_success="a hook for base classes",
        on_failure="a hook for base classes",
        on_retry="a hook for base classes",
        after_return="a hook for base classes",
        delay_on_commit="starts it if Django's transaction commits, as part of it",
        apply_async_on_commit="the same with options",
        s="its signature",
        si="its signature that takes no result",
        signature="its signature with options",
        retry="ends this attempt and tries again",
        request="this attempt: id, retries, args, kwargs, task, root_id, hostname, job",
        name="its name",
        max_retries="as decorated",
        default_retry_delay="as decorated",
        throws="as decorated",
        time_limit="as decorated",
        rate_limit="as decorated",
        ignore_result="as decorated, or as the settings say",
        priority="as decorated",
        acks_late="True: always the case",
        MaxRetriesExceededError="what retry raises when none is left",
        OperationalError="what delay raises while the database is away",
        AsyncResult="a result by its id",
        app="the application",
        run="the function",
        map="one task that calls it for each item",
        starmap="one task that calls it with the arguments in each item",
        chunks="a group of such tasks, each for some of the items",
        update_state="a state and its meta, for result.state and result.info while it runs",
    ),
    *_refuse(
        "task attribute",
        subtask="write task.s(…)",
        replace="return holdfast.Continue(other, input): the chain goes on with it",
        add_to_chord="start a new chord, or several chains with blockers",
        send_event=_OBSERVER,
        backend=_DATABASE,
        Request=_MIDDLEWARE,
        Strategy=_MIDDLEWARE,
        annotate="set the options in each task's decorator",
        on_bound="write it in __init__ of the base class, which is called for each task",
        shadow_name="the dashboard shows the task's name and its arguments",
    ),
    *_cover(
        "request attribute",
        id="the id that the task was started with",
        task="the task's name",
        args="positional arguments",
        kwargs="keyword arguments",
        retries="how often it was retried",
        root_id="the chain's id",
        hostname="the worker's name",
        called_directly="whether it was called as a function",
        is_eager="whether it is run in the caller",
        headers="what the call was given as headers",
        job="the Holdfast job",
    ),
    *_refuse(
        "request attribute",
        parent_id=_CHILDREN,
        group=_CHILDREN,
        chord=_JOIN,
        children=_CHILDREN,
        delivery_info=_ROUTING,
        reply_to=_ROUTING,
        correlation_id=_JOB,
        origin="pass it as an argument",
        eta=_JOB,
        expires=_JOB,
        timelimit=_JOB,
    ),
    *_cover(
        "result attribute",
        id="the task's id",
        task_id="the task's id",
        get="waits for the result",
        wait="waits for the result",
        status="PENDING, STARTED, SUCCESS, FAILURE, REVOKED, or what update_state said",
        state="the same",
        result="the result, or the task's exception",
        info="the same",
        traceback="the exception with its stack",
        maybe_throw="raises the exception of a task that failed",
        ready="whether it has ended",
        successful="whether it completed",
        failed="whether it failed",
        revoke="cancels it",
        forget="deletes it",
        parent="the result before it in its chain",
        name="the task's name, None for an id that no task has",
        args="what it was called with",
        kwargs="what it was called with",
        queue="its queue",
        worker="the worker that runs it, or ran it last",
        date_done="when it ended",
        app="the application",
    ),
    *_refuse(
        "result attribute",
        children=_CHILDREN,
        collect=_CHILDREN,
        then="write a chain, or `await app.aio.chains.wait(id)`",
        children_results=_CHILDREN,
        as_list="keep the ids: str(result) is its id",
        as_tuple="keep its id, and make app.AsyncResult(id) of it",
        backend=_DATABASE,
        build_graph=_CHILDREN,
        get_leaf=_CHILDREN,
        graph=_CHILDREN,
        ignored="a result that is ignored is None",
        iterdeps=_CHILDREN,
        maybe_reraise="call maybe_throw()",
        retries="`holdfast jobs show ID` has the attempts",
        revoke_by_stamped_headers="run `holdfast jobs cancel FILTER`",
        supports_native_join="join_native() does the same as join()",
        throw="call maybe_throw()",
    ),
    *_cover(
        "result argument",
        timeout="seconds after which get() raises TimeoutError",
        propagate="False returns the task's exception instead of raising it",
        interval="no effect: get() is told when the task ends",
        no_ack="no effect: there is no message to acknowledge",
        follow_parents="no effect: a chain is one record",
        callback="called with the id and the value of a task that completed",
        disable_sync_subtasks="False waits inside a task, which holds its slot meanwhile",
    ),
    *_refuse(
        "result argument",
        on_message=_PROGRESS,
        on_interval="get() does not poll; call get(timeout=…) in a loop of your own",
    ),
    *_cover(
        "group result attribute",
        results="the results of its tasks",
        get="waits for all of them",
        join="waits for all of them",
        ready="whether all have ended",
        successful="whether all completed",
        failed="whether one failed",
        completed_count="how many have completed",
        revoke="cancels those that have not ended",
        id="an id to restore it by",
        save="keeps which results it has",
        restore="a group that was saved",
        delete="removes what save kept",
        join_native="waits for all of them",
        parent="the result before it in its chain",
        children="the same as results",
        app="the application",
        waiting="whether one has not ended",
        forget="deletes all of them",
        maybe_throw="raises the exception of one that failed",
    ),
    *_refuse(
        "group result attribute",
        iterate=_EACH,
        iter_native=_EACH,
        then="write a chord: its body is given the results",
    ),
    *_cover(
        "signature attribute",
        name="the task's name",
        type="the task",
        delay="starts it",
        apply_async="starts it with options",
        apply="runs it in the caller",
        set="changes the options of one task's signature",
        clone="copies one task's signature",
        link="starts another with the result",
        link_error="starts another with the error",
        on_error="the same, and returns the signature",
        skew="gives each member of a group a countdown",
        group="the group of chunks",
        tasks="the signatures of a chain or group",
    ),
    *_refuse(
        "signature attribute",
        replace="write the signature anew",
        freeze="give the task a task_id",
        stamp="pass it as an argument",
        reverse="write the signature anew",
        map=_MAP,
        starmap=_MAP,
        chunks=_MAP,
    ),
    *_cover(
        "import",
        Celery="from holdfast_celery import Celery",
        shared_task="from holdfast_celery import shared_task",
        chain="from holdfast_celery import chain",
        group="from holdfast_celery import group",
        chord="from holdfast_celery import chord",
        signature="from holdfast_celery import signature",
        Signature="from holdfast_celery.canvas import Signature",
        get_task_logger="from holdfast_celery.utils.log import get_task_logger",
        crontab="from holdfast_celery import crontab",
        AsyncResult="from holdfast_celery import AsyncResult",
        GroupResult="from holdfast_celery import GroupResult",
        Task="from holdfast_celery import Task",
        signals="from holdfast_celery import signals",
        states="from holdfast_celery import states",
        worker_process_init="from holdfast_celery.signals import worker_process_init",
        worker_process_shutdown="from holdfast_celery.signals import worker_process_shutdown",
        before_task_publish="from holdfast_celery.signals import before_task_publish",
        task_received="from holdfast_celery.signals import task_received",
        task_revoked="from holdfast_celery.signals import task_revoked",
        task_prerun="from holdfast_celery.signals import task_prerun",
        task_postrun="from holdfast_celery.signals import task_postrun",
        task_success="from holdfast_celery.signals import task_success",
        task_failure="from holdfast_celery.signals import task_failure",
        task_retry="from holdfast_celery.signals import task_retry",
        task_internal_error="from holdfast_celery.signals import task_internal_error",
        import_modules="from holdfast_celery.signals import import_modules",
        setup_logging="from holdfast_celery.signals import setup_logging",
        worker_init="from holdfast_celery.signals import worker_init",
        worker_ready="from holdfast_celery.signals import worker_ready",
        worker_shutting_down="from holdfast_celery.signals import worker_shutting_down",
        worker_shutdown="from holdfast_celery.signals import worker_shutdown",
        EagerResult="from holdfast_celery.result import EagerResult",
        MaxRetriesExceededError="from holdfast_celery.exceptions import MaxRetriesExceededError",
        Retry="from holdfast_celery.exceptions import Retry",
        TimeLimitExceeded="from holdfast_celery.exceptions import TimeLimitExceeded",
        TimeoutError="from holdfast_celery.exceptions import TimeoutError",
        TaskRevokedError="from holdfast_celery.exceptions import TaskRevokedError",
        ChordError="from holdfast_celery.exceptions import ChordError",
        WorkerLostError="from holdfast_celery.exceptions import WorkerLostError",
    ),
    *_refuse(
        "import",
        schedule="pass the number of seconds",
        current_app="import your application",
        chunks=_MAP,
        xmap=_MAP,
        xstarmap=_MAP,
        subtask="write task.s(…)",
        solar="there are no solar schedules: compute the time in a cycle and start the task with eta",
        after_task_publish="give app.observe(…) an observer: job_created comes after the commit",
        task_sent="give app.observe(…) an observer: job_created comes after the commit",
        task_unknown="a task that is unknown is refused where it is started: catch UnknownJobType",
        task_rejected=_NO_MESSAGES,
        worker_before_create_process=_THREADS,
        celeryd_init="connect worker_init, and set app.conf next to app = Celery(…)",
        celeryd_after_setup="connect worker_init, and set app.conf next to app = Celery(…)",
        heartbeat_sent="`holdfast workers` and app.workers.list() have the heartbeats",
        after_setup_logger=_LOGGERS,
        after_setup_task_logger=_LOGGERS,
        beat_init=_CYCLES,
        beat_embedded_init=_CYCLES,
        eventlet_pool_started=_THREADS,
        eventlet_pool_preshutdown=_THREADS,
        eventlet_pool_postshutdown=_THREADS,
        eventlet_pool_apply=_THREADS,
        user_preload_options="write your own command",
        current_task="use bind=True and self",
        Ignore="return holdfast.Cancel(reason)",
        Reject="raise holdfast.Permanent(reason); for another attempt raise holdfast.Snooze('30s')",
        SoftTimeLimitExceeded=_SOFT,
        NotRegistered="catch holdfast.errors.UnknownJobType",
        OperationalError="catch holdfast.errors.DatabaseUnreachable",
        uuid="call app.new_id()",
        ResultSet="keep the results in a list",
        bootsteps=_MIDDLEWARE,
        contrib=_TEST_KIT,
        app="import names from holdfast_celery",
        beat="cycles are kept in the database",
        worker="run `holdfast worker APP`",
        utils="use the standard library",
    ),
)

_INDEX: Mapping[tuple[str, str], Feature] = {(each.kind, each.name): each for each in FEATURES}


def find_feature(kind: Kind, name: str) -> Feature | None:
    """Return what is known of a feature, by itself or as one of a family, such as `redis_*`."""
    return _INDEX.get((kind, name)) or _INDEX.get((kind, f"{name.partition('_')[0]}_*"))


_OLD_SETTINGS = {
    "CELERY_EAGER_PROPAGATES_EXCEPTIONS": "task_eager_propagates",
    "CELERY_MAX_CACHED_RESULTS": "result_cache_max",
    "CELERY_MESSAGE_COMPRESSION": "task_compression",
    "CELERY_RESULT_DBURI": "database_url",
    "CELERY_RESULT_DB_SHORT_LIVED_SESSIONS": "database_short_lived_sessions",
    "CELERY_RESULT_DB_TABLENAMES": "database_table_names",
    "CELERY_RESULT_ENGINE_OPTIONS": "database_engine_options",
    "CELERY_SEND_EVENTS": "worker_send_task_events",
    "CELERY_SEND_TASK_SENT_EVENT": "task_send_sent_event",
    "CELERY_TASK_RESULT_EXPIRES": "result_expires",
    "CELERYD_TASK_SOFT_TIME_LIMIT": "task_soft_time_limit",
    "CELERYD_TASK_TIME_LIMIT": "task_time_limit",
    "CELERYD_SOFT_TIME_LIMIT": "task_soft_time_limit",
    "CELERYD_TIME_LIMIT": "task_time_limit",
    "CELERYD_WORKER_LOST_WAIT": "worker_lost_wait",
}
_OLD_PREFIXES = (
    *(("CELERYBEAT_", "beat_"), ("CELERYD_", "worker_"), ("BROKER_", "broker_")),
    *(("CELERY_", "task_"), ("CELERY_", ""), ("CELERY_", "worker_")),
)


def modern_setting(name: str) -> str | None:
    """Return the name that Celery 4 gave a setting of before, None for any other: CELERYBEAT_SCHEDULE, BROKER_URL."""
    if name in _OLD_SETTINGS:
        return _OLD_SETTINGS[name]
    for old, new in _OLD_PREFIXES:
        found = new + name.removeprefix(old).lower()
        is_known = find_feature("setting", found) is not None
        if (
            name.startswith(old)
            and is_known
            and not (old == "CELERY_" and found.startswith("broker_"))
        ):
            return found
    return None


def refuse(kind: Kind, name: str, where: str = "") -> CeleryUnsupported:
    """Return the error for something that is not covered, with what to write instead."""
    found = find_feature(kind, name)
    place = f" of {where}" if where else ""
    if found is not None:
        # A covered one is missing here only: a chain has no options to set, as its tasks have.
        return CeleryUnsupported(f"{kind} {name}{place} is not covered", help=found.text)
    known = [each.name for each in FEATURES if each.kind == kind and each.is_covered]
    near = nearest(name, known) or f"there are {', '.join(known)}"
    return CeleryUnsupported(f"{kind} {name[:60]}{place} is unknown", help=near)


def refuse_import(module: str, name: str) -> Exception:
    """Return the error for a name that a module of ours does not have, with what to write instead of Celery's."""
    found = find_feature("import", name)
    if name.startswith("__") or found is None or found.is_covered:
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    return refuse("import", name)


class UnsupportedAttribute(CeleryUnsupported, AttributeError):
    """The same as an error of the attribute's: `hasattr` asks for it, and so does Python to word a NameError."""

    @classmethod
    def of(cls, kind: Kind, name: str, where: str = "") -> Self:
        """Return the error for an attribute that is not covered, with what to write instead."""
        refused = refuse(kind, name, where)
        return cls(refused.message, help=refused.help)


def refuse_attributes(kind: Kind, of: str = "") -> Callable[[Any, str], NoReturn]:
    """Return a `__getattr__` that refuses what a look-alike does not have; `of` is the attribute that names it."""

    def refuse_attribute(self: Any, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnsupportedAttribute.of(kind, name, getattr(self, of) if of else "")

    return refuse_attribute


def check_names(kind: Kind, names: Iterable[str], where: str = "") -> None:
    """Refuse names that are not covered. Raises: CeleryUnsupported."""
    for name in names:
        found = find_feature(kind, name)
        if found is None or not found.is_covered:
            raise refuse(kind, name, where)


def check_always_so(kind: Kind, options: Mapping[str, object], where: str = "") -> None:
    """Refuse to switch off what is always so. Raises: CeleryUnsupported."""
    for name, value in options.items():
        wanted = _ALWAYS.get(name)
        if wanted is not None and value not in wanted:
            place = f" of {where}" if where else ""
            raise CeleryUnsupported(
                f"{kind} {name}={repr(value)[:40]}{place} has no effect here",
                help=f"it is always {wanted[0]!r}; remove it",
            )


CALLED_BY_CELERY = frozenset({"Request", "Strategy", "annotate", "on_bound", "shadow_name"})
"""What Celery asks of a base class of tasks by itself, and nothing here does."""


def is_always_so(name: str) -> bool:
    """Whether an option has one value only."""
    return name in _ALWAYS


_TRUE = (True,)
_ALWAYS: Mapping[str, tuple[object, ...]] = {
    "acks_late": _TRUE,
    "reject_on_worker_lost": _TRUE,
    "track_started": _TRUE,
    "task_acks_late": _TRUE,
    "task_reject_on_worker_lost": _TRUE,
    "task_track_started": _TRUE,
    "enable_utc": _TRUE,
    "task_store_errors_even_if_ignored": _TRUE,
    "task_send_sent_event": _TRUE,
    "worker_send_task_events": _TRUE,
    "worker_hijack_root_logger": (False,),
    "broker_connection_retry": _TRUE,
    "broker_connection_retry_on_startup": _TRUE,
    "result_extended": _TRUE,
    "serializer": ("json",),
    "task_serializer": ("json",),
    "result_serializer": ("json",),
    "accept_content": (["json"], ("json",), {"json"}, ["application/json"]),
}
"""What is accepted because it is always so, and the only values that are."""
