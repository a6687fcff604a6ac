"""Probe each configured provider account with one free call, to check its URL and key."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import ConfigError
from holdfast.operate.doctor.finding import CheckContext, Finding, Severity
from holdfast_llm.batch.accounts import ConfiguredAccounts
from holdfast_llm.batch.item_outcome import safe_code
from holdfast_llm.operate.doctor import SQL
from holdfast_llm.provider.account import Account, Accounts
from holdfast_llm.provider.reply import WRONG_ADDRESS, ProviderRefused, ProviderUnsure
from holdfast_llm.provider.route import Route

# The default adapters of the built-in providers, if no job or route names one.
_USUAL = {
    "anthropic": "anthropic_messages",
    "gemini": "gemini_generate",
    "mistral": "mistral_chat",
    "openai": "openai_responses",
}


def probe_configured(context: CheckContext) -> Iterator[Finding]:
    """Probe the configured accounts."""
    return probe_providers(context, ConfiguredAccounts(context.settings, clock=context.store.clock))


def probe_providers(context: CheckContext, accounts: Accounts) -> Iterator[Finding]:
    """One finding for each account that is configured or has pending work."""
    used = _used(context)
    usual = {(name, kind) for name, kind in _USUAL.items() if name in context.settings.providers}
    for provider, kind in sorted(used | usual):
        try:
            account = accounts.for_route(Route(provider, kind, "probe"))
        except ConfigError as exc:
            if (provider, kind) not in used:
                # An unused built-in provider needs no key.
                continue
            remedy = f"Complete [providers.{provider}] or its credential."
            yield _finding(provider, Severity.PROBLEM, str(exc), remedy, "not_configured")
            continue
        yield _probe(context, account)


def _used(context: CheckContext) -> set[tuple[str, str]]:
    """The providers and adapters that jobs, batches and the settings name."""
    found = {
        (row["provider"], row["adapter_kind"]) for row in context.many(SQL.list_provider_kinds)
    }
    return found.union(*(one.provider_accounts(context.settings) for one in context.extensions))


def _probe(context: CheckContext, account: Account) -> Finding:
    """List the batches of an account, which is free at every provider."""
    try:
        if account.capabilities.supports_batches:
            next(iter(account.adapter.scan(account.client, context.store.clock.now())), None)
        else:
            account.client.request("GET", "models")
    except ProviderRefused as exc:
        code = safe_code(exc.failure.code)
        remedy = "Correct its key, quota or credit."
        if exc.failure.code in WRONG_ADDRESS:
            remedy = f"Correct providers.{account.provider}.base_url, or the proxy."
        return _finding(
            account.key,
            Severity.PROBLEM,
            f"The provider rejected the request: {code}.",
            remedy,
            code,
        )
    except ProviderUnsure as exc:
        seen = f"Unexpected response: {exc.reason}."
        remedy = (
            f"Correct providers.{account.provider}.base_url, or the proxy."
            if exc.is_foreign
            else "Try again; if it persists, check the provider's status page."
        )
        return _finding(account.key, Severity.PROBLEM, seen, remedy, exc.reason)
    return _finding(account.key, Severity.OK, "Reachable, and the key is valid.", "", "ok")


def _finding(account: str, severity: Severity, seen: str, remedy: str, code: str) -> Finding:
    facts = {"account": account, "code": code}
    return Finding("providers", severity, f"Account {account}: {seen}", remedy, facts)
