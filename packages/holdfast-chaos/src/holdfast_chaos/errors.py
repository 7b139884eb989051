"""The errors of campaigns, in the order of their codes."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError


class ChaosError(HoldfastError):
    """Something about a campaign of faults."""


class CampaignInputMissing(ChaosError):
    """A job type of the application cannot be started without an input.

    A campaign starts every job type that can begin a chain, or those given with `--input`.
    """

    code = "HF222"
    http_status, exit_code = 422, 2
    fix = "pass --input TYPE=JSON, once for each type that is to run"


class SchemaInUse(ChaosError):
    """The schema of a campaign already exists in the database.

    A campaign creates its own schema and drops it again, so it takes none that it did not create.
    """

    code = "HF223"
    http_status, exit_code = 409, 4
    fix = (
        "pass another --schema, or drop what an interrupted campaign left: DROP SCHEMA name CASCADE"
    )


class CampaignStalled(ChaosError):
    """A process of the campaign ended by itself, or no job was completed before the first fault.

    Nothing was broken yet, so the reason is the setup: the end of its log is shown.
    """

    code = "HF224"
    http_status, exit_code = 503, 1
    fix = "fix what its log says; `holdfast worker` with the same application shows the same"
