"""What costs add to Holdfast."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Inspect and act": {
            "costs": LazyCommand("holdfast_costs.cli", "Show what limits that count costs use.")
        }
    },
    actions={"cost.list": "viewer"},
    routes="holdfast_costs.api:ROUTES",
    job_cards="holdfast_costs.pages:CARDS",
    templates="holdfast_costs",
    explanations="holdfast_costs.usage:EXPLANATIONS",
    errors="holdfast_costs.errors",
    statements="holdfast_costs",
)
