"""A model without a table, so that the admin has a page and a permission for jobs."""

from __future__ import annotations

from django.db import models


class Job(models.Model):  # type: ignore[misc]
    """A job. Its rows are read through the operator API."""

    class Meta:
        managed = False
        default_permissions = ("view",)
        verbose_name = "job"
        verbose_name_plural = "jobs"
