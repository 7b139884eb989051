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
    runners="holdfast_costs.cost_runner:RUNNERS",
    costs="holdfast_costs.settlement",
    errors="holdfast_costs.errors",
    events="holdfast_costs.events:EVENTS",
    metrics="holdfast_costs.events:METRICS",
    statements="holdfast_costs",
)
