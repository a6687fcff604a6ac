"""``holdfast simulator``: the simulator as a command of Holdfast, where Holdfast is installed.

Only the entry point imports this module. The rest of the package works without Holdfast.
"""

from __future__ import annotations

from holdfast.extension import Extension


class SimulatorExtension(Extension):
    """Adds the command and nothing else."""

    name = "simulator"
    command_group = "Development"
    commands = {"simulator": "holdfast_simulator.command:simulator"}
