"""Delete files with request and answer texts at the provider, after the answers are stored.

Only files of committed batches are deleted, with retries until it succeeds. A missing file counts
as deleted, so a repeat is harmless.
"""

from __future__ import annotations

from holdfast.store import Statements
from holdfast_llm.batch.lease import BatchLease, BatchLeases
from holdfast_llm.batch.poll import GROWTH
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.reply import ProviderRefused, ProviderUnsure

SQL = Statements("holdfast_llm.batch", "collect.sql")


class FileCleaner:
    """Deletes the files of collected and released batches at the provider."""

    def __init__(self, resources: BatchResources, leases: BatchLeases) -> None:
        self.resources = resources
        self.settings = resources.settings
        self.leases = leases

    def delete_files(self, batch: BatchLease, account: Account) -> bool:
        """Delete the files of a collected or released batch. False if some remain."""
        left = 0
        files = [batch.input_file_id, *batch.result_files]
        if not account.capabilities.can_delete_file:
            # The files expire at the provider.
            files = []
        for file in dict.fromkeys(file for file in files if file):
            try:
                account.adapter.delete_file(account.client, file)
            except (ProviderRefused, ProviderUnsure):
                left += 1
        if batch.provider_batch_id and account.capabilities.can_delete_batch and not left:
            try:
                account.adapter.delete_batch(account.client, batch.provider_batch_id)
            except (ProviderRefused, ProviderUnsure):
                left += 1
        if left:
            settings = self.settings.batch
            pause = min(settings.poll_seconds * GROWTH ** min(batch.rounds, 64), 86_400.0)
            self.leases.put_off(batch, pause, is_round=True)
            return False
        self.leases.write(SQL.forget_files, batch)
        return True
