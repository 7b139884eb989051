"""Settings: arguments over environment over file over defaults, checked once, each value with its origin."""

from holdfast.settings.definitions import GROUPS, Settings
from holdfast.settings.effective import Effective, effective, reference
from holdfast.settings.load import SettingsFile, load_settings, load_some, read_group, read_settings
from holdfast.settings.options import (
    WorkerValues,
    check_leases,
    embedded_options,
    event_retry,
    job_retry,
    worker_options,
)
from holdfast.settings.rules import timings_under
from holdfast.settings.schema import (
    Address,
    Choice,
    CronText,
    Flag,
    Kind,
    Names,
    Text,
    Variable,
    Whole,
    ZoneName,
    setting,
    variables_of,
)

__all__ = [
    "GROUPS",
    "Address",
    "Choice",
    "CronText",
    "Effective",
    "Flag",
    "Kind",
    "Names",
    "Settings",
    "SettingsFile",
    "Text",
    "Variable",
    "Whole",
    "WorkerValues",
    "ZoneName",
    "check_leases",
    "effective",
    "embedded_options",
    "event_retry",
    "job_retry",
    "load_settings",
    "load_some",
    "read_group",
    "read_settings",
    "reference",
    "setting",
    "timings_under",
    "variables_of",
    "worker_options",
]
