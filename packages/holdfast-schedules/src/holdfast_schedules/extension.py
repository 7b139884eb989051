"""What schedules add to Holdfast."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Inspect and act": {
            "schedules": LazyCommand(
                "holdfast_schedules.cli",
                "Set, list, pause, resume, run and delete schedules that are set at run time.",
            )
        }
    },
    actions={
        "schedule.list": "viewer",
        "schedule.pause": "operator",
        "schedule.resume": "operator",
        "schedule.run_now": "operator",
        "schedule.set": "developer",
        "schedule.delete": "developer",
    },
    confined="holdfast_schedules.schedule_store:CONFINED",
    routes="holdfast_schedules.api:ROUTES",
    pages="holdfast_schedules.pages:PAGES",
    menu=(("schedules", "Schedules", "/schedules", "u"),),
    sentences={
        "pause_schedule": "{name} was paused",
        "resume_schedule": "{name} was resumed",
        "run_schedule": "A job of {name} was started",
        "delete_schedule": "{name} was deleted",
        "set_schedule": "{name} was saved",
    },
    templates="holdfast_schedules",
    checks="holdfast_schedules.doctor:CHECKS",
    runners="holdfast_schedules.schedule_runner:RUNNERS",
    settings="holdfast_schedules.settings:GROUPS",
    errors="holdfast_schedules.errors",
    events="holdfast_schedules.events:EVENTS",
    metrics="holdfast_schedules.events:METRICS",
    statements="holdfast_schedules",
)
