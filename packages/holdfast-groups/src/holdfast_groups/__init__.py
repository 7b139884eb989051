"""Groups: many jobs started together, with progress in one read, one end and one cancel; see docs/do/groups.md."""

from holdfast.extensions import lazy_names

__all__ = ["AsyncJobGroups", "GroupProgress", "JobGroups", "add_groups"]

__getattr__ = lazy_names(
    __name__,
    {"groups": ["AsyncJobGroups", "JobGroups", "add_groups"], "progress": ["GroupProgress"]},
)
