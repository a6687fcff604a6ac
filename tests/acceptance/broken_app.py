"""The application of these tests in a worker process with a part that fails."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from holdfast.engine.worker.lease_renewer import LeaseRenewer
from holdfast.engine.worker.settle_buffer import SettleBuffer
from tests.acceptance.app import make

hf = make(os.environ["HOLDFAST_DB"])


def broken(*_: Any) -> None:
    raise KeyError("broken")


# Under a supervisor only the first worker process is broken.
marker = Path(os.environ["BROKEN_ONCE"])
is_first_worker = "--worker-id" in sys.argv and not marker.exists()
if is_first_worker or not os.environ["SUPERVISED"]:
    marker.touch()
    if os.environ["BROKEN_PART"] == "settle-buffer":
        SettleBuffer._settle_group = broken  # type: ignore[assignment]
    else:
        LeaseRenewer._abandon_overdue = broken  # type: ignore[assignment]
