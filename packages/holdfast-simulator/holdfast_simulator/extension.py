"""``holdfast simulator``: the simulator as a command of Holdfast, where Holdfast is installed.

The entry point imports this module, and the demo of Holdfast imports ``demo``. The rest of the
package works without Holdfast.
"""

from __future__ import annotations

from holdfast.extension import Extension


class SimulatorExtension(Extension):
    """Adds the command, and an act of the demo."""

    name = "simulator"
    command_group = "Development"
    commands = {"simulator": "holdfast_simulator.command:simulator"}
    demo_acts = {"Mail": "holdfast_simulator.demo:run"}
