"""The demo with a flood of fewer and longer jobs: a fifth of the CPU time, the same duration."""

from __future__ import annotations

FLOOD_JOBS = 600

PROGRAM = f"""
import sys
from holdfast.cli import main
from holdfast.demo import story

story.FLOOD_JOBS = {FLOOD_JOBS}
story.WAVE_JOBS = 100
story.Story._work = lambda self, number, least, most: {{"number": number, "seconds": 0.03}}
main(["demo", *sys.argv[1:]])
"""
