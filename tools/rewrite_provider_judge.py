"""A judge of the evaluation that asks a provider, over the route of [rewrite.judge_route].

It sends the request of the package and reads the answer as the package does. Each pair is one paid
call; `--record` keeps the verdicts for another run.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from holdfast.config import Settings
from holdfast.errors import ConfigError, Permanent
from holdfast_llm.batch.accounts import ConfiguredAccounts
from holdfast_llm.batch.item_outcome import read_reply
from holdfast_llm.provider.reply import Failure, ProviderRefused, ProviderUnsure
from holdfast_llm.provider.route import ExecutionMode, Route
from holdfast_rewrite.judge_prompt import judge_request
from holdfast_rewrite.verdict import NoVerdict, read_verdict
from tools.rewrite_judges import Verdict
from tools.rewrite_pairs import Pair


class ProviderJudge:
    """Judges with the model of the judge's route in the settings. Raises ConfigError without."""

    def __init__(self, settings: Settings, *, env: Mapping[str, str] | None = None) -> None:
        judge = settings.rewrite.judge_route
        if judge.provider is None or judge.adapter_kind is None or judge.model is None:
            raise ConfigError("There is no judge to ask: add [rewrite.judge_route].")
        self._judge = judge
        self._route = Route(
            judge.provider, judge.adapter_kind, judge.model, execution_mode=ExecutionMode.ASYNC
        )
        self._account = ConfiguredAccounts(settings, env=env).for_route(self._route)
        self.name = f"{judge.provider} {judge.model}, prompt {judge.prompt_version}"

    def verdict(self, pair: Pair) -> Verdict:
        """Ask for one pair; an answer that is no verdict, and a failed call, give none."""
        request = judge_request(
            original=pair.request.original_text,
            rewrite=pair.rewrite,
            target_locale=pair.request.target_locale,
            prompt_version=self._judge.prompt_version,
            sends_temperature=self._judge.sends_temperature,
        )
        echo = ""
        if self._account.capabilities.wants_echo:
            echo = sha256(pair.pair_id.encode()).hexdigest()[:8]
            request = request.with_echo(echo)
        body = self._account.adapter.body(self._route, request)
        try:
            answer = self._account.adapter.call(self._account.client, self._route, body)
            if isinstance(answer, Failure):
                return Verdict.NONE
            reply = read_reply(answer, request, echo)
            found = read_verdict(
                reply.text, original=pair.request.original_text, rewrite=pair.rewrite
            )
        except (ProviderRefused, ProviderUnsure, Permanent, NoVerdict):
            return Verdict.NONE
        return Verdict.STORE if found.is_clean else Verdict.HOLD
