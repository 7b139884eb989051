"""What output adds to Holdfast."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Inspect and act": {
            "output": LazyCommand("holdfast_output.cli", "Show and follow what handlers emit.")
        }
    },
    actions={"output.read": "viewer"},
    confined="holdfast_output.output_store:CONFINED",
    routes="holdfast_output.api:ROUTES",
    job_cards="holdfast_output.pages:CARDS",
    templates="holdfast_output",
    errors="holdfast_output.errors",
    events="holdfast_output.events:EVENTS",
    metrics="holdfast_output.events:METRICS",
    statements="holdfast_output",
)
