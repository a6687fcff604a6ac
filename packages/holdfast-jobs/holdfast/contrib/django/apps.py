"""The Django application."""

from __future__ import annotations

from django.apps import AppConfig


class HoldfastConfig(AppConfig):  # type: ignore[misc]
    """Jobs in the admin, and ``manage.py holdfast``."""

    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Holdfast"
    default_auto_field = "django.db.models.BigAutoField"
