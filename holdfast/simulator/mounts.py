"""Who is mounted in the simulator, by the name that faults and URLs use."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.simulator.anthropic import Anthropic
from holdfast.simulator.exchange import Door, Mount
from holdfast.simulator.gemini import Gemini
from holdfast.simulator.mistral import Mistral
from holdfast.simulator.openai import Azure, OpenAI
from holdfast.simulator.postmark import Postmark
from holdfast.simulator.resend import Resend
from holdfast.simulator.slack import Slack
from holdfast.simulator.webhook import Webhook
from holdfast.simulator.world import World

MOUNTS: tuple[Callable[[World], Mount], ...] = (OpenAI, Azure, Anthropic, Gemini, Mistral)

CARRIERS: tuple[Callable[[World], Door], ...] = (Postmark, Resend, Slack, Webhook)
