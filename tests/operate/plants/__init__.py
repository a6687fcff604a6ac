"""Every violation that is planted into a full store."""

from __future__ import annotations

from tests.operate.plants.beside import other_plants
from tests.operate.plants.jobs import (
    cancel_plants,
    deletion_plants,
    job_plants,
    older_plants,
    place_plants,
    remainder_plants,
    unreachable_plants,
)
from tests.operate.plants.parts import audit_plants, letter_plants, stage_plants
from tests.operate.plants.plant import Plant as Plant
from tests.operate.plants.postgres import postgres_plants
from tests.operate.plants.sqlite import sqlite_plants

PLANTS: tuple[Plant, ...] = (
    *job_plants(),
    *place_plants(),
    *older_plants(),
    *remainder_plants(),
    *deletion_plants(),
    *cancel_plants(),
    *stage_plants(),
    *letter_plants(),
    *audit_plants(),
    *other_plants(),
    *postgres_plants(),
    *sqlite_plants(),
    *unreachable_plants(),
)
