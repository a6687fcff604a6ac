"""Each distribution works without those that it does not require, as built wheels prove."""

from __future__ import annotations

from collections.abc import Callable

from tests.packaging.environment import Environment

Make = Callable[..., Environment]


def test_the_simulator_alone_lists_its_faults(environment: Make) -> None:
    alone = environment("holdfast-simulator")
    assert not (alone.site_packages / "holdfast").exists()

    listed = alone.run("holdfast-simulator", "--list-faults")

    assert listed.returncode == 0, listed.stderr
    assert "accept_then_drop" in listed.stdout
