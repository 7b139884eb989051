"""Breaks workers and databases under load, and checks what is left; see `holdfast chaos`."""

from holdfast.extensions import lazy_names

_HOMES = {
    "checker": ["CampaignVerdict", "judge"],
    "journal": ["FaultRecord", "History", "read_journals"],
}
__all__ = ["CampaignVerdict", "FaultRecord", "History", "judge", "read_journals"]

__getattr__ = lazy_names(__name__, _HOMES)
