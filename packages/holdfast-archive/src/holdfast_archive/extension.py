"""What the archive adds to Holdfast."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Inspect and act": {
            "archive": LazyCommand(
                "holdfast_archive.cli",
                "Archive what is due; list, show, verify and restore manifests.",
            )
        }
    },
    actions={
        "archive.list": "viewer",
        "archive.run": "operator",
        "archive.verify": "operator",
        "archive.restore": "developer",
    },
    routes="holdfast_archive.api:ROUTES",
    pages="holdfast_archive.pages:PAGES",
    menu=(("archive", "Archive", "/archive", "r"),),
    sentences={
        "verify": "{name} verified",
        "restore": "{name} restored",
        "archive_work": "{name} is in progress; this page shows how far along it is",
    },
    templates="holdfast_archive",
    checks="holdfast_archive.doctor:CHECKS",
    settings="holdfast_archive.settings:GROUPS",
    errors="holdfast_archive.errors",
    events="holdfast_archive.events:EVENTS",
    metrics="holdfast_archive.events:METRICS",
    statements="holdfast_archive",
)
