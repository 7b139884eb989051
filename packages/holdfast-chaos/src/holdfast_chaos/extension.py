"""What campaigns of faults add to Holdfast."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Set up and operate": {
            "chaos": LazyCommand(
                "holdfast_chaos.cli",
                "Kill, pause and cut off workers and databases under load, and check that nothing is lost.",
            )
        }
    },
    errors="holdfast_chaos.errors",
)
