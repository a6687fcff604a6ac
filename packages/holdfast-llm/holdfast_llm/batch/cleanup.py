"""Clean up: delete at the provider what holds anybody's text, once its answers are ours.

Only what is committed is deleted, and it is tried for as long as it takes: what is not there counts
as deleted, so twice does no harm.
"""

from __future__ import annotations

from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.leased import Leased, put_off, write
from holdfast_llm.batch.point import Point
from holdfast_llm.batch.poll import GROWTH
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.reply import ProviderRefused, ProviderUnsure


def delete_files(lane: BatchLane, batch: Leased, account: Account) -> bool:
    """Delete the files of a collected or released batch. False: not all of them yet."""
    left = 0
    files = [batch.input_file_id, *batch.result_files]
    if not account.capabilities.can_delete_file:
        # They go when the server lets them go.
        files = []
    for file in dict.fromkeys(file for file in files if file):
        try:
            account.adapter.delete_file(account.wire, file)
        except (ProviderRefused, ProviderUnsure):
            left += 1
    if batch.provider_batch_id and account.capabilities.can_delete_batch and not left:
        try:
            account.adapter.delete_batch(account.wire, batch.provider_batch_id)
        except (ProviderRefused, ProviderUnsure):
            left += 1
    lane.reached(Point.FILES_DELETED)
    if left:
        settings = lane.settings.batch
        pause = min(settings.poll_seconds * GROWTH ** min(batch.rounds, 64), 86_400.0)
        put_off(lane, batch, pause, is_round=True)
        return False
    write(lane, "forget_files", batch)
    lane.reached(Point.DELETE_RECORDED)
    return True
