"""Write the schema definitions of a new PostgreSQL database, which verify compares others with.

    python tools/definitions.py [--check]

Each component has a file beside its migrations. Run it after every change of a migration.
``--check`` writes nothing and fails if a file is out of date.
"""

from __future__ import annotations

import argparse
import re
import sys
from functools import partial
from importlib import resources
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast.config.extensions import installed
from holdfast.extension import components_of
from holdfast.operate.verify.definitions import FILE, read_definitions, write_definitions
from holdfast.store import Component, open_store
from holdfast.store.component import in_order
from holdfast.store.tables import read_tables
from tests.postgres_server import PostgresServer


def place_of(component: Component) -> Path:
    """Return the file with the definitions of a component."""
    package = resources.files(component.package)
    return Path(str(package.joinpath(component.folder, FILE)))


def current() -> dict[Component, str]:
    """Return the expected text of each component's file.

    Fails if a table does not declare its component.
    """
    server = PostgresServer()
    texts: dict[Component, str] = {}
    try:
        store = open_store(server.dsn(), check=False)
        components = in_order(components_of(installed().values()))
        before: dict[str, str] = {}
        for component in components:
            store.components = (*store.components, component)
            store.migrate()
            found = store.read(partial(read_definitions, components=components))
            changed = sorted(name for name in before if found.get(name) != before[name])
            if changed:
                raise SystemExit(
                    f"{component.name} changes {', '.join(changed)} of another component"
                )
            texts[component] = write_definitions(
                {name: found[name] for name in found if name not in before}
            )
            before = found
        store.close()
    finally:
        server.close()
    tables = re.findall(r"^table:(\w+)$", "\n".join(before), re.M)
    if missing := read_tables(one.package for one in components).undeclared(tables):
        sys.exit(f"Declare these tables in a tables.toml: {', '.join(missing)}")
    return texts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    wanted = parser.parse_args()
    is_old = False
    for component, text in current().items():
        place = place_of(component)
        is_current = place.exists() and place.read_text(encoding="utf-8") == text
        if wanted.check and not is_current:
            print(f"{component.name}: {FILE} is not what the migrations make: run make definitions")
            is_old = True
        elif not is_current:
            place.write_text(text, encoding="utf-8")
        print(f"{component.name}: {len(text.splitlines())} definitions")
    return int(is_old)


if __name__ == "__main__":
    sys.exit(main())
