"""A simulator of model providers and message channels for unmodified official clients.

server.py    reads requests and cuts connections where a fault says so play.py      one exchange:
the router answers, or a fault changes the answer openai.py …  one module per provider: routes,
request and response formats, error envelope state.py     files and batches of all providers, which
change as the clock advances process.py   a batch: validation, execution item by item, results
postmark.py …  message channels over HTTP; smtp_server.py over SMTP messages.py  accepted messages
by token and recipient ledger.py    billed executions; leaks.py texts found where they must not be
"""

from __future__ import annotations

from holdfast_simulator.clock import Clock, MovingClock, VirtualClock
from holdfast_simulator.faults import ALL_SCRIPTS
from holdfast_simulator.judge import is_judging, judge, with_judge
from holdfast_simulator.leaks import Leak
from holdfast_simulator.ledger import Charge
from holdfast_simulator.message_scripts import MESSAGE_SCRIPTS
from holdfast_simulator.messages import Messages, ReceivedMessage, Taken
from holdfast_simulator.models import Pace
from holdfast_simulator.prompt import Finish, ItemError, Prompt, Responder, Said, respond
from holdfast_simulator.scripts import SCRIPTS
from holdfast_simulator.simulator import Simulator
from holdfast_simulator.smtp_server import SmtpServer

__all__ = [
    "ALL_SCRIPTS",
    "MESSAGE_SCRIPTS",
    "SCRIPTS",
    "Charge",
    "Clock",
    "Finish",
    "ItemError",
    "Leak",
    "Messages",
    "MovingClock",
    "Pace",
    "Prompt",
    "ReceivedMessage",
    "Responder",
    "Said",
    "Simulator",
    "SmtpServer",
    "Taken",
    "VirtualClock",
    "is_judging",
    "judge",
    "respond",
    "with_judge",
]

__version__ = "0.1.0"
