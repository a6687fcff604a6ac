"""manage.py holdfast: the command line of Holdfast with the application of the project."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from django.core.management.base import BaseCommand

APP = "holdfast.contrib.django.app:hf"


class Command(BaseCommand):  # type: ignore[misc]
    """Run ``holdfast --app …`` for this project, for example ``manage.py holdfast worker``."""

    help = "Run a holdfast command with the jobs of this project, such as: worker, migrate."
    requires_system_checks: ClassVar[list[str]] = []

    def run_from_argv(self, argv: list[str]) -> None:
        """Pass every argument on, also options that Django knows."""
        from holdfast.cli import main

        # With --processes, the command starts itself again.
        sys.argv = ["holdfast", "--app", APP, *argv[2:]]
        main(sys.argv[1:])

    def handle(self, *args: Any, **options: Any) -> None:
        """Run through call_command, with the arguments as a list."""
        from holdfast.cli import main

        main(["--app", APP, *options.get("arguments", args)])
