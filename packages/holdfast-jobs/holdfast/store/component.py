"""Components: each has its own migrations and its own version in the database.

The core is the component ``core``. An extension that stores data adds its own component.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.errors import ConfigError

CORE_NAME = "core"


@dataclass(frozen=True, slots=True)
class Component:
    """A folder of migrations, and the versions of other components that it needs.

    *package* is the importable package that contains *folder*. *needs* maps the name of a component
    to the lowest version that must be applied first. The package has a ``tables.toml`` that
    declares whether each table belongs to a tenant.
    """

    name: str
    package: str
    folder: str = "migrations"
    needs: Mapping[str, int] = field(default_factory=dict, hash=False)


CORE = Component(CORE_NAME, "holdfast.store")


def in_order(components: Sequence[Component]) -> list[Component]:
    """Return the core and *components* without duplicates, in dependency order."""
    waiting = {found.name: found for found in (CORE, *components)}
    ordered: list[Component] = []
    while waiting:
        ready = [found for found in waiting.values() if not found.needs.keys() & waiting.keys()]
        if not ready:
            raise ConfigError(f"The components {', '.join(sorted(waiting))} depend on each other.")
        for found in ready:
            ordered.append(waiting.pop(found.name))
    return ordered
