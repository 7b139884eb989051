"""What the look-alikes add to Holdfast."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Set up and operate": {
            "migrate-from": LazyCommand(
                "holdfast_celery.cli", "Show what it takes to move a project to Holdfast."
            )
        }
    },
    errors="holdfast_celery.errors",
)
