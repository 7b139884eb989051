"""What files add to Holdfast."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Inspect and act": {
            "large-values": LazyCommand(
                "holdfast_files.cli", "Read inputs and results that are in files."
            )
        }
    },
    routes="holdfast_files.api:ROUTES",
    errors="holdfast_files.errors",
    statements="holdfast_files",
)
