"""What service calls and requests that wait add to Holdfast."""

from holdfast.extensions import Extension

EXTENSION = Extension(
    settings="holdfast_calls.settings:GROUPS",
    errors="holdfast_calls.errors",
    events="holdfast_calls.events:EVENTS",
    metrics="holdfast_calls.events:METRICS",
)
