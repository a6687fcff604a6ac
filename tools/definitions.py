"""Write what a new PostgreSQL database says of our schema, for verify to compare others with.

    python tools/definitions.py [--check]

Run it after every change of a migration. ``--check`` writes nothing and fails if the file is old.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast.operate.verify.definitions import FILE, read_definitions, write_definitions
from holdfast.store import open_store
from tests.postgres_server import PostgresServer

PLACE = Path(__file__).resolve().parent.parent / "holdfast" / "operate" / "verify" / FILE


def current() -> str:
    """The text that the file should have."""
    server = PostgresServer()
    try:
        store = open_store(server.dsn(), check=False)
        store.migrate()
        found = store.read(read_definitions)
        store.close()
    finally:
        server.close()
    return write_definitions(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    wanted = parser.parse_args()
    text = current()
    is_current = PLACE.exists() and PLACE.read_text(encoding="utf-8") == text
    if wanted.check and not is_current:
        print(f"{PLACE.name} is not what the migrations make: run make definitions")
        return 1
    if not is_current:
        PLACE.write_text(text, encoding="utf-8")
    print(f"{PLACE.name}: {len(text.splitlines())} definitions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
