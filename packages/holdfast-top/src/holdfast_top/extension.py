"""What the live view adds to Holdfast."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Inspect and act": {
            "top": LazyCommand(
                "holdfast_top.command",
                "Watch jobs, types, workers, dead letters and cycles live, and act on them.",
            )
        }
    }
)
