"""What the checks of rows add to Holdfast."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Inspect and act": {
            "verify": LazyCommand(
                "holdfast_verify.cli",
                "Check that no row breaks a law: lost, twice, torn, waiting forever.",
            )
        }
    },
    statements="holdfast_verify",
)
