"""The dashboard's addresses: `path("jobs/", include("holdfast_django.urls"))`."""

from __future__ import annotations

from django.urls import re_path

from holdfast_django.dashboard import dashboard

app_name = "holdfast"
urlpatterns = [re_path(r"^(?P<path>.*)$", dashboard, name="dashboard")]
