"""What the tests of workflows share: run everything that is due, and verify the store."""

from __future__ import annotations

from holdfast import Holdfast


def drain(hf: Holdfast) -> int:
    """Run workers until no job is due; return how many jobs were claimed."""
    claimed = 0
    worker = hf.worker()
    while found := worker.run_once().claimed:
        claimed += found
    return claimed


def verify_clean(hf: Holdfast) -> None:
    """The invariants of the store hold."""
    report = hf.operate(actor="user:auditor", role="admin").verify()
    assert not report.violated, report.violated
