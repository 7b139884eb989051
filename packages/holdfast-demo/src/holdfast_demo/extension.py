"""What the demo adds to Holdfast."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Get started": {
            "demo": LazyCommand(
                "holdfast_demo.command", "Run a small shop that demonstrates the guarantees."
            )
        }
    }
)
