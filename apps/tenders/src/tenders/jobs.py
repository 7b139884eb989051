"""The application's Holdfast object. Modules with cycles import it; `tenders.worker` imports them all."""

from __future__ import annotations

import logging

from holdfast import Holdfast

jobs = Holdfast()  # HOLDFAST_URL, or sqlite:///holdfast.db

# It logs the URL of every request, and the API's has the ticket in it.
logging.getLogger("httpx").setLevel(logging.WARNING)
