"""The providers that the simulator knows, by the name that faults and URLs use."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.simulator.anthropic import Anthropic
from holdfast.simulator.exchange import Mount
from holdfast.simulator.gemini import Gemini
from holdfast.simulator.mistral import Mistral
from holdfast.simulator.openai import Azure, OpenAI
from holdfast.simulator.world import World

MOUNTS: tuple[Callable[[World], Mount], ...] = (OpenAI, Azure, Anthropic, Gemini, Mistral)
