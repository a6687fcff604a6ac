"""The login for handlers: its privileges, and whether it isolates tenants."""

from __future__ import annotations

from dataclasses import dataclass

HELP = "'holdfast handler-login NAME' prints the SQL for a fit one; see docs/concepts/tenancy.md."


@dataclass(frozen=True, slots=True)
class Login:
    """A login for handlers, as the server reports it."""

    name: str
    is_handler: bool
    # Roles with more than a tenant's privileges that it has or can assume.
    climbs_to: str | None
    # Tables of the schema holdfast that it, or one of its roles, owns.
    owns: str | None

    @property
    def fault(self) -> str | None:
        """Why this login does not isolate tenants; None if it does."""
        if self.climbs_to is not None:
            return f"has the rights of {self.climbs_to}"
        if self.owns is not None:
            return f"owns {self.owns} in the schema holdfast"
        if not self.is_handler:
            return "is not a member of holdfast_handler"
        return None
