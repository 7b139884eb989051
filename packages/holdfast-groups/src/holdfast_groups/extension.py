"""What groups add to Holdfast."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Inspect and act": {
            "groups": LazyCommand(
                "holdfast_groups.cli",
                "List groups of jobs, show how far they are, and cancel them.",
            )
        }
    },
    actions={"group.list": "viewer", "group.cancel": "operator"},
    confined="holdfast_groups.progress:CONFINED",
    routes="holdfast_groups.api:ROUTES",
    pages="holdfast_groups.pages:PAGES",
    job_cards="holdfast_groups.pages:CARDS",
    menu=(("groups", "Groups", "/groups", "p"),),
    sentences={"cancel_group": "The group was cancelled"},
    templates="holdfast_groups",
    statements="holdfast_groups",
)
