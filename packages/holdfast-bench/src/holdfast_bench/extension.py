"""What the bench adds to Holdfast."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Set up and operate": {
            "bench": LazyCommand(
                "holdfast_bench.command",
                "Benchmark this machine: `holdfast worker` against hand-written loops in the same run.",
            )
        }
    }
)
