"""Who is mounted in the simulator, by the name that faults and URLs use."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_simulator.anthropic import Anthropic
from holdfast_simulator.exchange import Door, Mount
from holdfast_simulator.gemini import Gemini
from holdfast_simulator.mistral import Mistral
from holdfast_simulator.openai import Azure, OpenAI
from holdfast_simulator.postmark import Postmark
from holdfast_simulator.resend import Resend
from holdfast_simulator.slack import Slack
from holdfast_simulator.webhook import Webhook
from holdfast_simulator.world import World

MOUNTS: tuple[Callable[[World], Mount], ...] = (OpenAI, Azure, Anthropic, Gemini, Mistral)

CARRIERS: tuple[Callable[[World], Door], ...] = (Postmark, Resend, Slack, Webhook)
