"""What contexts add to Holdfast."""

from holdfast.extensions import Extension

EXTENSION = Extension(errors="holdfast_context.errors")
