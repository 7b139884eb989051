"""Settings: arguments over environment over file over defaults, validated once, each value with its origin."""

from holdfast.core.duration import milliseconds
from holdfast.settings.definitions import GROUPS, Settings
from holdfast.settings.fields import (
    FilesUrl,
    HttpUrl,
    Integer,
    Secret,
    Variable,
    parse_variable,
    setting,
    variables_of,
)
from holdfast.settings.load import (
    SettingsFile,
    effective,
    effective_options,
    from_env,
    load_settings,
    load_some,
    read_settings,
    unknown_variables,
)
from holdfast.settings.rules import (
    check_leases,
    event_retry,
    job_retry,
    timing_if_set,
    timings_under,
)

__all__ = [
    "GROUPS", "FilesUrl", "HttpUrl", "Integer", "Secret", "Settings", "SettingsFile", "Variable", "check_leases",
    "effective", "effective_options", "event_retry", "from_env", "job_retry", "load_settings", "load_some",
    "milliseconds", "parse_variable", "read_settings", "setting", "timing_if_set", "timings_under",
    "unknown_variables", "variables_of",
]  # fmt: skip
