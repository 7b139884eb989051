"""What groups add to Holdfast."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Inspect and act": {
            "groups": LazyCommand(
                "holdfast_groups.cli", "Show how far groups of jobs are, and cancel them."
            )
        }
    },
    actions={"group.list": "viewer", "group.cancel": "operator"},
    routes="holdfast_groups.api:ROUTES",
    statements="holdfast_groups",
)
