"""Read-only admin pages: a list of jobs, and one job with its timeline."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest
from django.template.response import TemplateResponse

from holdfast.contrib.django.app import application
from holdfast.contrib.django.models import Job
from holdfast.engine.job import State
from holdfast.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.operate.jobs import JobFilter
from holdfast.operate.operator import Operator
from holdfast.operate.page import NEWEST

PAGE = 50


@admin.register(Job)
class JobAdmin(admin.ModelAdmin):  # type: ignore[misc]
    """Jobs of every tenant, for users with the permission ``holdfast.view_job``."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> TemplateResponse:
        """List jobs, newest first, by state, type and page."""
        self._check(request)
        wanted = {name: request.GET.get(name) or None for name in ("state", "job_type", "queue")}
        problem = ""
        page: Any = ()
        try:
            found = JobFilter(**wanted)
            page = _operator(request).jobs.list(
                found, limit=PAGE, before=request.GET.get("before") or NEWEST
            )
        except InvalidArgument as exc:
            problem = "; ".join(exc.fields.values())
        context = {
            **self.admin_site.each_context(request),
            "title": "Jobs",
            "opts": self.model._meta,
            "jobs": page,
            "next": getattr(page, "next", None),
            "states": [state.value for state in State],
            "wanted": wanted,
            "problem": problem,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/holdfast/jobs.html", context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> TemplateResponse:
        """Show one job. Its payload and result are not shown."""
        self._check(request)
        try:
            job = _operator(request).jobs.get(object_id)
        except (NotFound, InvalidArgument) as exc:
            raise Http404("No such job.") from exc
        shown = {name: value for name, value in job.record.items() if value not in (None, "")}
        context = {
            **self.admin_site.each_context(request),
            "title": f"{job.record['job_type']} {job.id}",
            "opts": self.model._meta,
            "job": job,
            "fields": shown.items(),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/holdfast/job.html", context)

    def _check(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            from django.core.exceptions import PermissionDenied

            raise PermissionDenied


def _operator(request: HttpRequest) -> Operator:
    try:
        return application().operate(actor=f"user:{request.user.pk}", role="admin")
    except HoldfastError as exc:
        raise Http404("The jobs cannot be read.") from exc
