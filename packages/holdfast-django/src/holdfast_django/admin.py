"""Jobs in Django's admin: a list to search, each job with its errors, and the actions of the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db.transaction import non_atomic_requests
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.utils.functional import cached_property
from django.utils.html import format_html

from holdfast.admin.access import Caller, Gateway, Role
from holdfast.admin.jobs import MAX_AT_ONCE
from holdfast.admin.service import Admin
from holdfast.core.errors import HoldfastError
from holdfast_django.application import database_alias, load_django_app
from holdfast_django.loop_thread import loop_thread
from holdfast_django.models import JobRow
from holdfast_django.permissions import principal_of

if TYPE_CHECKING:
    from django.db.models import QuerySet

    JobRowAdminBase = admin.ModelAdmin[JobRow]
    AnyPaginator = Paginator[JobRow]
else:
    JobRowAdminBase, AnyPaginator = admin.ModelAdmin, Paginator

MAX_COUNTED = 10_000
_PAYLOADS = ("input", "output")


class CappedPaginator(AnyPaginator):
    """Counts no further than a reader turns pages: the count of a busy queue would take longer than the page."""

    @cached_property
    def count(self) -> int:
        """How many jobs there are, or the most that are counted."""
        rows: Any = self.object_list
        return int(rows.order_by()[:MAX_COUNTED].count())


@admin.register(JobRow)
class JobRowAdmin(JobRowAdminBase):
    """Jobs, newest first. Users need the permissions of the dashboard."""

    list_display = ("type", "state", "attempt", "created_at", "finished_at", "failure", "page")
    list_filter = ("state",)
    search_fields = ("type", "key")
    show_full_result_count = False
    paginator = CappedPaginator
    actions = ("retry", "cancel")

    @non_atomic_requests(using=database_alias())
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """List them, and run actions: on Holdfast's own connections, as the dashboard does."""
        return super().changelist_view(request, extra_context)

    @admin.display(description="error")
    def failure(self, job: JobRow) -> str:
        """The first line of its error."""
        return (job.error or "").partition("\n")[0][:120]

    @admin.display(description="dashboard")
    def page(self, job: JobRow) -> str:
        """A link to its page on the dashboard, where that is mounted."""
        try:
            address = reverse("holdfast:dashboard", kwargs={"path": f"jobs/{job.id}"})
        except NoReverseMatch:
            return ""
        return format_html('<a href="{}">open</a>', address)

    @admin.action(description="Retry selected failed jobs", permissions=["operate"])
    def retry(self, request: HttpRequest, chosen: QuerySet[JobRow]) -> None:
        """Put failed jobs back into the queue."""
        self._move(request, chosen, "retry")

    @admin.action(description="Cancel selected unfinished jobs", permissions=["operate"])
    def cancel(self, request: HttpRequest, chosen: QuerySet[JobRow]) -> None:
        """Cancel jobs, running ones through their abort signal."""
        self._move(request, chosen, "cancel")

    def _move(self, request: HttpRequest, chosen: QuerySet[JobRow], command: str) -> None:
        """Run a command as this user: authorised and audited as on the dashboard."""
        principal = principal_of(request.user)
        assert principal is not None
        ids = [str(each) for each in chosen.values_list("pk", flat=True)[: MAX_AT_ONCE + 1]]
        if len(ids) > MAX_AT_ONCE:
            text = f"More than {MAX_AT_ONCE:,} jobs are selected. Use a filter on the dashboard."
            self.message_user(request, text, messages.ERROR)
            return
        jobs = Admin(Gateway(load_django_app())).jobs
        try:
            moved = loop_thread().run(getattr(jobs, command)(Caller(principal), ids)).moved
        except HoldfastError as error:
            text = f"{error.message}. {error.help[:1].upper()}{error.help[1:]}."
            self.message_user(request, text, messages.ERROR)
            return
        self.message_user(request, f"{command.capitalize()}: {len(moved)} of {len(ids)} jobs")

    def get_queryset(self, request: HttpRequest) -> QuerySet[JobRow]:
        """Read jobs where they are."""
        return JobRow.rows.using(database_alias()).order_by("-id")

    def get_fields(self, request: HttpRequest, obj: JobRow | None = None) -> Any:
        """Show payloads to developers only, as the dashboard does."""
        names = [each.name for each in JobRow._meta.fields]
        hidden = () if self._has_role(request, Role.DEVELOPER) else _PAYLOADS
        return [each for each in names if each not in hidden]

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Show it to those who may see jobs."""
        return self._has_role(request, Role.VIEWER)

    def has_view_permission(self, request: HttpRequest, obj: JobRow | None = None) -> bool:
        """Show it to those who may see jobs."""
        return self._has_role(request, Role.VIEWER)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Offer the actions to operators."""
        return self._has_role(request, Role.OPERATOR)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Jobs are started by code."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: JobRow | None = None) -> bool:
        """Jobs are not edited."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: JobRow | None = None) -> bool:
        """Jobs are removed by retention, or on the dashboard."""
        return False

    def _has_role(self, request: HttpRequest, role: Role) -> bool:
        principal = principal_of(request.user)
        return principal is not None and principal.role >= role
