"""What files add to Holdfast."""

from holdfast.extensions import Extension

EXTENSION = Extension(
    errors="holdfast_files.errors",
    statements="holdfast_files",
)
