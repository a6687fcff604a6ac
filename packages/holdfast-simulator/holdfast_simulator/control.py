"""The control plane under /_sim: clock, faults, journal, bill and leaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from holdfast_simulator.certificate import certificate
from holdfast_simulator.clock import MovingClock
from holdfast_simulator.exchange import Answer, Call, Refused
from holdfast_simulator.faults import ALL_SCRIPTS
from holdfast_simulator.journal import Journal
from holdfast_simulator.ledger import Charge
from holdfast_simulator.messages import Taken
from holdfast_simulator.state import SimulatorState


class Wrong(Exception):
    """An invalid request to the control plane; the message says why."""


class Control:
    """The HTTP control API, for tests in another process and for curl."""

    def __init__(self, state: SimulatorState, journal: Journal, reset: Callable[[], None]) -> None:
        self._state = state
        self._journal = journal
        self._does: Mapping[tuple[str, str], Callable[[Call], Any]] = {
            ("GET", ""): self._index,
            ("GET", "/clock"): self._clock,
            ("POST", "/clock"): self._move_clock,
            ("GET", "/scripts"): self._scripts,
            ("GET", "/faults"): lambda _call: state.faults.view(),
            ("POST", "/faults"): self._add_fault,
            ("DELETE", "/faults"): lambda _call: state.faults.clear(),
            ("GET", "/journal"): self._read_journal,
            ("DELETE", "/journal"): lambda _call: journal.clear(),
            ("GET", "/ledger"): self._ledger,
            ("GET", "/messages"): self._messages,
            ("GET", "/certificate"): lambda _call: {"pem": certificate(state.seed)[0]},
            ("GET", "/leaks"): lambda _call: [asdict(leak) for leak in state.leaks.found],
            ("GET", "/snapshot"): self._snapshot,
            ("POST", "/reset"): lambda _call: reset(),
        }

    def handle(self, call: Call) -> Answer:
        """Answer one request, always with JSON."""
        do = self._does.get((call.method, call.path.removeprefix("/_sim").rstrip("/")))
        if do is None:
            known = sorted(f"{method} /_sim{path}" for method, path in self._does)
            return Answer.from_json(
                {"error": f"There is no {call.method} {call.path}.", "is": known}, 404
            )
        try:
            return Answer.from_json(do(call))
        except (Wrong, ValueError, TypeError, Refused) as exc:
            return Answer.from_json({"error": str(exc)}, 400)

    def _index(self, call: Call) -> Any:
        routers = self._state.endpoints.values()
        return {
            "mounts": {router.name: call.origin + router.prefix for router in routers},
            "control": sorted(f"{method} /_sim{path}" for method, path in self._does),
        }

    def _clock(self, call: Call) -> Any:
        clock = self._state.clock
        is_still = not isinstance(clock, MovingClock) or clock.is_frozen
        return {"now": clock.now().isoformat(), "is_still": is_still}

    def _move_clock(self, call: Call) -> Any:
        asked = _object(call)
        clock: Any = self._state.clock
        seconds = asked.get("advance", 0)
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds < 0:
            raise Wrong("advance is a number of seconds, 0 or more")
        if "freeze" in asked:
            if not isinstance(clock, MovingClock):
                raise Wrong("a virtual clock moves only by advance and cannot be frozen")
            (clock.freeze if asked["freeze"] else clock.thaw)()
        clock.advance(seconds=seconds)
        self._state.pass_time()
        return self._clock(call)

    def _scripts(self, call: Call) -> Any:
        return [
            {
                "number": script.number,
                "name": script.name,
                "summary": script.summary,
                "op": script.op,
                "options": dict(script.options),
            }
            for script in ALL_SCRIPTS.values()
        ]

    def _add_fault(self, call: Call) -> Any:
        asked = dict(_object(call))
        name = asked.pop("name", None)
        if not isinstance(name, str):
            raise Wrong("name is missing: one of GET /_sim/scripts")
        self._state.faults.add(name, **asked)
        return self._state.faults.view()[-1]

    def _read_journal(self, call: Call) -> Any:
        entries = self._journal.find(provider=call.query.get("provider"), op=call.query.get("op"))
        return [entry.view() for entry in entries]

    def _ledger(self, call: Call) -> Any:
        ledger = self._state.ledger
        tokens_in, tokens_out = ledger.total()
        return {
            "input_tokens": tokens_in,
            "output_tokens": tokens_out,
            "charges": [_charge(charge) for charge in ledger.charges],
            "double_paid": {
                unit: [_charge(charge) for charge in charges]
                for unit, charges in ledger.double_paid().items()
            },
        }

    def _messages(self, call: Call) -> Any:
        """Return the accepted messages without addresses and texts."""
        messages = self._state.messages
        twice = messages.accepted_twice()
        return {
            "accepted": [_taken(taken) for taken in messages.accepted],
            "accepted_twice": [[_taken(taken) for taken in several] for several in twice.values()],
        }

    def _snapshot(self, call: Call) -> Any:
        return self._state.snapshot()


def _object(call: Call) -> Mapping[str, Any]:
    given = call.json
    if not isinstance(given, dict):
        raise Wrong("the body must be a JSON object")
    return given


def _charge(charge: Charge) -> dict[str, Any]:
    return {**asdict(charge), "at": charge.at.isoformat()}


def _taken(taken: Taken) -> dict[str, Any]:
    return {
        "id": taken.id,
        "provider": taken.provider,
        "token": taken.token,
        "at": taken.at.isoformat(),
        "body_hash": taken.letter.body_hash,
        "repeats": len(taken.repeats),
        "is_given_up": taken.is_given_up,
    }
