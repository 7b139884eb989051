"""What files add to Holdfast: their errors."""

from holdfast.extensions import Extension

EXTENSION = Extension(errors="holdfast_files.errors")
