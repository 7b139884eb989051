"""What Django's users may do: a user of Django as a principal of Holdfast."""

from __future__ import annotations

from typing import Any

from holdfast.admin.access import Principal, Role

PERMISSIONS = {
    Role.VIEWER: ("view_jobs", "Can see jobs"),
    Role.OPERATOR: ("operate_jobs", "Can retry, cancel and pause jobs"),
    Role.DEVELOPER: ("develop_jobs", "Can see payloads, start and delete jobs"),
}
"""The permission of each role; a role may do what those before it may."""


def principal_of(user: Any) -> Principal | None:
    """Return a user's principal: a superuser is a developer, others have the role of their highest permission."""
    if not user.is_authenticated or not user.is_active:
        return None
    for role in sorted(PERMISSIONS, reverse=True):
        if user.has_perm(f"holdfast.{PERMISSIONS[role][0]}"):
            return Principal(user.get_username(), role)
    return None
