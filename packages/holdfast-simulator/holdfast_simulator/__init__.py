"""A provider simulator: the official clients work against it unmodified, and nothing is paid.

server.py    reads a request and breaks the connection off where a fault says so
play.py      one exchange: the router answers, or a fault turns it
openai.py …  a provider each: its routes, its words, its envelope
state.py     the files and batches of all of them, which change while the clock does
process.py   a batch: validated, executed item by item, put out
postmark.py …  those who carry messages, over HTTP; smtp_server.py over SMTP
messages.py  what was really taken to be carried, by token and recipient
ledger.py    what would be on the bill; leaks.py whose text was where it must not be
"""

from __future__ import annotations

from holdfast_simulator.clock import Clock, MovingClock, VirtualClock
from holdfast_simulator.faults import ALL_SCRIPTS
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
    "respond",
]

__version__ = "0.1.0"
