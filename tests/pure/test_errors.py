"""The tree of error classes matches its drawing, and its names never change."""

from __future__ import annotations

import inspect
from datetime import timedelta

import pytest

from holdfast import errors
from holdfast.errors import Failure, JobCanceled, Permanent, RateLimited, Signal, Snooze, Transient

CLASSES = {
    name: found
    for name, found in inspect.getmembers(errors, inspect.isclass)
    if found.__module__ == errors.__name__
}

ERROR_CLASSES = {
    "ArtifactStoreDown": "ARTIFACT_STORE_DOWN",
    "AuthDenied": "AUTH_DENIED",
    "ChecksumMismatch": "CHECKSUM_MISMATCH",
    "ConfigInvalid": "CONFIG_INVALID",
    "Defect": "DEFECT",
    "Failure": "FAILURE",
    "Gone": "GONE",
    "HandlerTimeout": "HANDLER_TIMEOUT",
    "NetworkTimeout": "NETWORK_TIMEOUT",
    "Permanent": "PERMANENT",
    "PipelineChanged": "PIPELINE_CHANGED",
    "PolicyRejected": "POLICY_REJECTED",
    "RateLimited": "RATE_LIMITED",
    "ResultInvalid": "RESULT_INVALID",
    "RowInvalid": "ROW_INVALID",
    "RuleViolated": "RULE_VIOLATED",
    "SchemaInvalid": "SCHEMA_INVALID",
    "StoreUnavailable": "STORE_UNAVAILABLE",
    "Transient": "TRANSIENT",
    "UnknownJobType": "UNKNOWN_JOB_TYPE",
    "UpstreamDown": "UPSTREAM_DOWN",
    "UpstreamError": "UPSTREAM_ERROR",
    "WorkerCrashed": "WORKER_CRASHED",
    "WriteConflict": "WRITE_CONFLICT",
}


TREE = """
HoldfastError
    ConfigError
    InvalidArgument
        InvalidJob
            SecretInPayload
            ForeignKeyScope
        InvalidSchedule
        InvalidArtifact
            ArtifactTooLarge
    NotFound
        JobNotFound
        ArtifactNotFound
        LinkRefused
        ScheduleNotFound
        UnknownKind
        UnknownQueue
        UnknownRun
        RunNotFound
    Conflict
        LeaseLost
        QueueFull
    Forbidden
    StoreError
        StoreBusy
        StoreDown
        RuleBroken
        SchemaMismatch
        ForkedStore
    Failure
        Transient
            NetworkTimeout
            RateLimited
            UpstreamDown
            UpstreamError
            WriteConflict
            StoreUnavailable
            ArtifactStoreDown
            HandlerTimeout
            WorkerCrashed
        Permanent
            SchemaInvalid
            AuthDenied
            Gone
            ChecksumMismatch
            PolicyRejected
            RuleViolated
            ConfigInvalid
            Defect
            PipelineChanged
            UnknownJobType
            RowInvalid
            ResultInvalid
Signal
    Snooze
    JobCanceled
"""


def drawn() -> dict[str, str]:
    """Each class of the tree with its parent."""
    tree: dict[str, str] = {}
    above: dict[int, str] = {-1: ""}
    for line in TREE.strip().splitlines():
        level = (len(line) - len(line.lstrip())) // 4
        above[level] = line.strip()
        tree[line.strip()] = above[level - 1]
    return tree


def test_the_tree_is_as_drawn() -> None:
    actual = {
        name: found.__base__.__name__ if found.__base__.__name__ in CLASSES else ""
        for name, found in CLASSES.items()
    }

    assert drawn() == actual


def test_the_stored_strings_are_the_ones_that_were_promised_and_no_two_alike() -> None:
    actual = {
        name: found.error_class for name, found in CLASSES.items() if issubclass(found, Failure)
    }

    assert actual == ERROR_CLASSES
    assert len(set(actual.values())) == len(actual)


@pytest.mark.req("R-01")
def test_every_failure_is_either_retryable_or_not() -> None:
    for found in CLASSES.values():
        if issubclass(found, Failure) and found is not Failure:
            assert issubclass(found, Transient) != issubclass(found, Permanent)
            assert found.retryable == issubclass(found, Transient)


def test_signals_pass_through_except_exception() -> None:
    for signal in (Snooze(5), JobCanceled()):
        assert isinstance(signal, Signal)
        assert not isinstance(signal, Exception)


def test_lengths_may_be_seconds_or_timedeltas() -> None:
    assert Snooze(90).delay == Snooze(timedelta(seconds=90)).delay
    assert RateLimited(retry_after=30).retry_after == timedelta(seconds=30)


def test_an_error_about_a_job_says_what_to_do() -> None:
    assert "Check the id" in str(errors.JobNotFound("x"))
    assert "@hf.job('x')" in str(errors.UnknownKind("x"))
