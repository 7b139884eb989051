"""What the dashboard adds to Holdfast: the pages beside the API, and the export of their lists."""

from holdfast.extensions import Extension

EXTENSION = Extension(
    routes="holdfast_dashboard.export:ROUTES",
    dashboard="holdfast_dashboard.page_dispatch:serve_pages",
)
