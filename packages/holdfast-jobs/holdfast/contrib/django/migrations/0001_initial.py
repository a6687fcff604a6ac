"""The permission to see jobs. No table is created."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc]
    """Adds the unmanaged model of the admin."""

    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="Job",
            fields=[("id", models.BigAutoField(primary_key=True, serialize=False))],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "default_permissions": ("view",),
                "managed": False,
            },
        )
    ]
