"""What the dashboard adds to Holdfast: the pages beside the API."""

from holdfast.extensions import Extension

EXTENSION = Extension(dashboard="holdfast_dashboard.page_dispatch:serve_pages")
