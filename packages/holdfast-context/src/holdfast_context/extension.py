"""What contexts add to Holdfast."""

from holdfast.extensions import Extension

EXTENSION = Extension(
    confinement="holdfast_context.confinement:ContextConfinement",
    confined="holdfast_context.cuts:CONFINED",
    errors="holdfast_context.errors",
    statements="holdfast_context",
)
