"""Names that databases, dashboards and users have: a rename or an addition is decided here.

Every name below is compared with what the code and the migrated databases have, in both directions.
A name that is new is added to its list; a name that was released is never removed.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from holdfast import Failure, Holdfast, Metrics, Settings, State
from holdfast.config import BUILT_IN_RUNS
from holdfast.config.extensions import installed, known_sections
from holdfast.store import Store, open_store
from holdfast.telemetry.gauges import GAUGES
from tests.story import look
from tests.tree import ROOT, source

# The allowed values of a column with a closed set, as its CHECK constraint lists them.
STATES = """
api_key.role: admin operator viewer
artifact.access: owner tenant
artifact.kind: input output
artifact.owner_type: api_key system user
artifact.state: removed stored writing
batch_item.execution_mode: async batch
batch_item.state: conflict failed missing not_run open released succeeded unknown
category.duty: audit_enrichment export general maintenance notification planning
channel_circuit.kind: refused unavailable
dead_letter.kind: auth_config data defect transient
dead_letter.state: discarded fixed_forward open remediated replayed replaying resolved triaged
    validated
dead_letter_note.actor_type: api_key system user
dead_letter_replay.actor_type: api_key system user
dead_letter_replay.outcome: canceled completed failed
console_session.actor_type: api_key system user
console_session.role: admin operator viewer
delivery.actor_type: api_key system user
delivery.proof: none seen unknowable
delivery.state: dropped failed held pending sent
delivery_attempt.outcome: accepted channel_refused refused rejected throttled unsure
delivery_attempt.phase: before_commit committed
delivery_attempt.reason: first idempotent_window looked_up_not_found operator_resend policy_resend
    proven_not_taken receiver_dedupes
delivery_evidence.source: late_answer lookup operator send webhook
delivery_evidence.verdict: confirmed not_found resend several taken undelivered unreachable
finding.confidence: high low medium
finding.severity: critical high info low medium
home_member.role: housemate owner
job_envelope.actor_type: api_key system user
job_outcome.state: canceled completed failed
job_type_rule.cancel_role: admin member operator
limit_key.set_by: code operator
provider_batch.execution_mode: async batch
provider_batch.state: collected creating ended prepared quarantined released submitted uploaded
provider_call.execution_mode: async batch
provider_call.kind: actual free orphan unknown
queue.set_by: code operator
review.status: batch_submitted canceled completed failed processing queued
rewrite_draft.decision: approve edit expire reject
rewrite_draft.gate: pass warn
rewrite_draft.hold_reason: disagreement no_verdict policy
rewrite_draft.state: held judging rejected stored
rewrite_request.rewrite_strength: full_reframe light_touch
rewrite_request.status: batch_submitted canceled completed failed processing queued
rewrite_request.step: canceled classified completed context_built enqueued failed held judging
    queued received revealed routed
rewrite_request.surface: direct_message other weekly_harmony
schedule.catch_up: all one skip
schedule.set_by: code operator
schedule_tick.outcome: enqueued held missed ran skipped taken
tenant.set_by: code operator
worker.state: draining working
job_wait.state: received timed_out waiting
worker_run.actor_type: api_key system user
worker_run.outcome: done failed full lost out_of_time skipped stopped
worker_run.trigger_kind: cron manual schedule
workflow.state: canceled completed failed running
workflow_item.state: canceled completed failed waiting
workflow_step.on_failure: continue fail ignore
workflow_step.state: canceled completed failed released running waiting
"""

AUDIT_EVENTS = """
account.probe_allowed api_key.created api_key.revoked api_key.rotated console.session_ended
console.session_opened artifact.linked artifact.removed artifact.stored artifacts.swept
audit.exported
batch.adopted batch.cancel_requested batch.released category.declared channel.circuit_closed
channel.circuit_opened dead_letter.discarded dead_letter.escalated dead_letter.fixed_forward
dead_letter.noted dead_letter.remediated dead_letter.reopened dead_letter.replay_requested
dead_letter.replayed dead_letter.resolved dead_letter.triaged dead_letter.validated
dead_letter.verified delivery.backfilled delivery.confirmed delivery.dropped delivery.erased
delivery.failed delivery.held delivery.intended delivery.removed delivery.requeued delivery.resent
delivery.sent job.advanced job.cancel_requested job.canceled job.deadlettered
job.duplicate_differs job.enqueued job.failed job.lease_lost job.pruned job.released job.retried
job.snoozed job.started job.submitted job.succeeded job.woken job.write_authorized key.reset
key.set operator.refused queue.paused queue.reset queue.resumed queue.set review.duplicate_differs
review.erased review.forgotten review.recipient_erased review.submitted rewrite.output_stored
rewrite_canceled rewrite_classified rewrite_completed rewrite_context_built rewrite_data_erased
rewrite_data_exported rewrite_enqueued rewrite_erased rewrite_failed rewrite_forgotten
rewrite_held rewrite_held_approved rewrite_held_edited rewrite_held_expired rewrite_held_read
rewrite_held_rejected rewrite_judged
rewrite_queued rewrite_received rewrite_revealed rewrite_routed rules.declared run.refused
run.triggered schedule.added schedule.changed schedule.declared schedule.paused schedule.removed
schedule.reset schedule.resumed table.granted tenant.reset tenant.set
schedule.triggered webhook.added webhook.paused webhook.removed webhook.resumed webhook.rotated
event.sent workflow.budget_changed workflow.cancel_requested workflow.enqueued
workflow.replay_requested
"""

# Strings of the same shape with another meaning: job types, fields, log lines.
NOT_AUDIT_EVENTS = """
batch.answers_accepted review.criticise review.model review.process rewrite.judged
"""

ERROR_CLASSES = """
WAIT_TIMED_OUT
ANSWER_NOT_TAKEN ARTIFACT_STORE_DOWN AUTH_DENIED BATCH_CANCELED BATCH_EXPIRED BATCH_FAILED
CHANGE_MISSING CHANGE_TOO_LARGE CHECKSUM_MISMATCH CONFIG_INVALID DEFECT DELIVERY_FAILED FAILURE
GIT_FAILED GONE HANDLER_TIMEOUT JUDGE_ASKED NETWORK_TIMEOUT OUTPUT_INVALID OUTPUT_REJECTED
OUTPUT_TRUNCATED
PATCH_INVALID PATH_REFUSED PERMANENT PIPELINE_CHANGED POLICY_REJECTED PROMPT_REFUSED RATE_LIMITED
RECIPIENT_UNREACHABLE REDACTION_FAILED REQUEST_UNFIT RESULT_CONFLICT RESULT_INVALID RESULT_MISSING
REVIEW_ERASED REVIEW_OVERTAKEN REVIEW_PARTS_FAILED REVIEW_UNFIT ROW_INVALID RULE_VIOLATED
SCHEMA_CHANGED SCHEMA_INVALID STEP_BUDGET_EXCEEDED STORE_UNAVAILABLE TEXT_ERASED TRANSIENT
UNKNOWN_JOB_TYPE UPSTREAM_DOWN UPSTREAM_ERROR WORKER_CRASHED WRITE_CONFLICT WRONG_LANGUAGE
"""

METRICS = """
deadletter_total{job_type,queue} holdfast_audit_seals_total{}
holdfast_audit_unsealed_age_seconds{} holdfast_audit_unsealed_events{}
holdfast_batch_alerts_total{what} holdfast_batch_changes_total{change}
holdfast_batch_files_undeleted{} holdfast_batch_items_open{state}
holdfast_batch_items_total{change} holdfast_batch_oldest_age_seconds{state}
holdfast_batch_overdue_seconds{} holdfast_batches{state} holdfast_circuits_open{provider}
holdfast_db_hidden_transactions{} holdfast_db_oldest_xmin_age_seconds{} holdfast_db_up{}
holdfast_dead_letters_escalated{job_type} holdfast_dead_letters_open{job_type}
holdfast_deadletter_escalations_total{job_type,queue} holdfast_deliveries_open{state}
holdfast_deliveries_total{change,channel} holdfast_delivery_alerts_total{what}
holdfast_delivery_oldest_age_seconds{state} holdfast_delivery_sends_total{channel,reason}
holdfast_jobs_settled_total{job_type,outcome,queue} holdfast_lease_losses_total{job_type,queue}
holdfast_model_calls_total{kind,mode,provider} holdfast_model_cost_dollars_total{mode,provider}
holdfast_model_tokens_total{kind,mode,provider} holdfast_notifications_dropped_total{job_type}
holdfast_queue_crowded_total{queue} holdfast_queue_depth{queue,state}
holdfast_queue_oldest_ready_age_seconds{queue} holdfast_queue_paused{queue}
holdfast_queue_workers{queue} holdfast_rewrite_failures_total{code,surface}
holdfast_rewrite_held_oldest_age_seconds{} holdfast_rewrite_verdicts_total{code}
holdfast_rewrites_held{reason} holdfast_rewrites_total{lane,step,strength,surface}
holdfast_runs_total{outcome,run}
holdfast_schedule_lag_seconds{} holdfast_schedule_ticks_total{outcome,schedule}
holdfast_worker_changes_total{change} holdfast_workers_live{state}
jobs_attempts_histogram{job_type} jobs_duration_seconds{job_type,queue}
jobs_enqueued_total{job_type,queue} jobs_failed_total{error_class,job_type,queue}
jobs_started_total{job_type,queue} jobs_succeeded_total{job_type,queue}
"""

# The bounded runs that are declared without settings.
RUNS = """
batch_collector batch_submitter outbox_reconciler review_retention rewrite_batch_collector
rewrite_batch_submitter rewrite_orchestrator
"""

SETTINGS_KEYS = """
ageing_seconds alerts.lease_losses alerts.min_severity alerts.quiet_seconds alerts.webhook
alerts.address alerts.allow_private alerts.channel alerts.webhook_secret app extensions
artifacts.endpoint artifacts.keep_days artifacts.link_key
artifacts.max_bytes artifacts.store audit_key audit_tables batch.circuit_seconds
batch.count_settle_seconds batch.deadline_seconds batch.environment batch.fence_seconds
batch.give_up_seconds batch.keep_answer_seconds batch.key batch.lease_seconds
batch.max_circuit_seconds batch.max_poll_seconds batch.max_rounds batch.merge_groups
batch.micro_items batch.micro_seconds batch.on_ambiguous batch.poll_seconds
batch.release_after_seconds batch.settle_seconds budgets.usd_per_day channels.allow_private
channels.base_url channels.ca_file channels.connect_seconds channels.credential_env
channels.credential_file channels.folder channels.host channels.kind channels.max_parallel
channels.on_unknown channels.port channels.previous_secret_env channels.previous_secret_file
channels.read_seconds channels.receiver_dedupes channels.retention_seconds channels.secret_env
channels.secret_file channels.secrets_file channels.security channels.sender
channels.settle_seconds channels.status_url channels.username claim_limit db default_org handler_db
keys.max_running keys.rate lease_seconds log_level outbox.circuit_seconds outbox.grace_seconds
outbox.key outbox.lease_seconds outbox.max_attempts outbox.max_circuit_seconds
outbox.patience_seconds payload_limit_bytes poll_seconds pool_size prices.cache_read
prices.cache_write_long prices.cache_write_short prices.input prices.input_up_to prices.mode
prices.model prices.output prices.provider prices.source prices.valid_from profile
profiles.claim_timeout_seconds profiles.eligible_statuses profiles.max_jobs_per_run
profiles.max_runtime_seconds profiles.order profiles.respect_not_before_at
profiles.retry_backoff_seconds profiles.schedule providers.account providers.allow_private
providers.api_version providers.base_url providers.can_delete_batch providers.can_delete_file
providers.connect_seconds providers.credential_env providers.credential_file
providers.enqueued_tokens providers.kind providers.lookup providers.max_bytes providers.max_items
providers.max_line_bytes providers.on_ambiguous providers.read_seconds
providers.release_after_seconds providers.supports_batches providers.wants_echo queues.max_depth
queues.max_depth_per_tenant queues.max_running queues.max_running_per_tenant queues.rate
queues.small_depth queues.weight rescue_seconds retention.keep_days
retention.keep_runs_days retention.rules.category retention.rules.job_type
retention.rules.keep_days retention.rules.state review.adapter_kind review.git_seconds
review.keep_days review.keep_findings_days review.max_bytes review.max_files review.mode
review.model review.provider review.repositories rewrite.abandoned_seconds rewrite.classifier
rewrite.classifier_route.adapter_kind rewrite.classifier_route.model
rewrite.classifier_route.provider rewrite.classifier_timeout_seconds rewrite.held_alert_hours
rewrite.judge_rejects rewrite.judge_route.adapter_kind rewrite.judge_route.execution_mode
rewrite.judge_route.model rewrite.judge_route.prompt_version rewrite.judge_route.provider
rewrite.judge_route.sends_temperature rewrite.keep_held_days rewrite.keep_original_days
rewrite.without_judge
rewrite.keep_rewritten_days rewrite.reveal_delay_seconds rewrite.routes.adapter_kind
rewrite.routes.cache_eligible rewrite.routes.execution_mode rewrite.routes.high_quality
rewrite.routes.max_retries rewrite.routes.model rewrite.routes.prompt_version
rewrite.routes.provider rewrite.routes.source_locales rewrite.routes.supports_translation
rewrite.routes.surfaces rewrite.routes.target_locales rewrite.surfaces runs.claim_timeout_seconds
runs.eligible_statuses runs.job_types runs.max_jobs_per_run runs.max_runtime_seconds runs.order
runs.profile runs.queues runs.respect_not_before_at runs.retry_backoff_seconds runs.schedule
runs.zone schedules.catch_up schedules.cron schedules.every schedules.job_type schedules.org_id
schedules.payload schedules.run schedules.tenants schedules.zone serve.body_limit_bytes
serve.body_seconds
serve.host serve.idempotency_hours serve.port serve.read_seconds serve.requests_per_minute
serve.session_hours serve.trace_url
serve.oidc.admins serve.oidc.all_tenants serve.oidc.allow_private serve.oidc.client_id
serve.oidc.client_secret_env serve.oidc.client_secret_file serve.oidc.issuer serve.oidc.name_claim
serve.oidc.operators serve.oidc.redirect_url serve.oidc.role_claim serve.oidc.scopes
serve.oidc.tenant_claim serve.oidc.viewers
settle_limit tenants.max_running tenants.weight
webhooks.allow_private webhooks.connect_seconds webhooks.max_endpoints webhooks.max_parallel
webhooks.overlap_seconds webhooks.read_seconds workflows.keep_days
unknown_type_patience_seconds
"""

# The names in a refused write: constraints, unique indexes and triggers that refuse.
CONSTRAINTS_ON_BOTH = """
audit_event_of_one_or_many job_attempt_ended job_attempt_ends_its_claim job_attempt_never_changes
job_attempt_says_why job_attempt_stays job_attempts_positive job_cancel_never_changes
job_cancel_stays job_envelope_never_changes job_not_enqueued_dead
job_outcome_event_names_its_actor job_outcome_known job_outcome_never_changes job_outcome_stays
job_outcome_was_claimed job_ready_follows job_remainder_never_changes job_remainder_never_leaves
job_running_follows job_running_write_once job_started job_submitted_once job_waiting_follows
job_waiting_keeps_its_queues job_waiting_write_once
api_key_never_widens api_key_once api_key_rate_positive api_key_revoked_by_someone
api_key_role_known api_key_window_used api_request_answered api_request_ends
api_request_key_length api_request_status_is_success console_session_actor_known
console_session_ends
console_session_role_known id_name_length
artifact_access_known artifact_begins_writing artifact_edge artifact_erased_only_if_removed
artifact_expires_later artifact_kind_known artifact_leaves_only_when_erased
artifact_measure_is_sound artifact_name_bounded artifact_once_per_place artifact_owner_known
artifact_place_is_its_id artifact_removed_iff_time artifact_state_known
artifact_stored_iff_measured artifact_write_once audit_note_is_object audit_note_is_small
audit_note_named audit_note_never_changes audit_note_never_leaves audit_note_stays_in_its_tenant
audit_seal_never_changes audit_seal_never_leaves batch_item_begins_open batch_item_custom_id_once
batch_item_edge batch_item_mode_known batch_item_one_open_per_unit batch_item_open_iff_open
batch_item_recorded_iff_ended batch_item_state_known batch_item_stays batch_item_write_once
category_built_in_stays category_duty_known category_in_range category_never_critical
category_never_leaves category_refusal_bounded changelist_version_grows channel_circuit_kind_known
channel_circuit_opened dead_letter_begins_open dead_letter_checklist_is_object dead_letter_edge
dead_letter_ended dead_letter_ended_says_why dead_letter_ending_bounded
dead_letter_evidence_bounded dead_letter_failure_stands dead_letter_fix_bounded
dead_letter_kind_known dead_letter_leaves_only_when_ended dead_letter_note_actor_known
dead_letter_note_bounded dead_letter_note_never_changes dead_letter_note_never_leaves
dead_letter_replay_actor_known dead_letter_replay_at_failed_stage dead_letter_replay_ended
dead_letter_replay_ended_iff_outcome dead_letter_replay_is_another_job
dead_letter_replay_never_leaves dead_letter_replay_numbered dead_letter_replay_once_per_job
dead_letter_replay_one_at_a_time dead_letter_replay_outcome_known dead_letter_replay_says_why
dead_letter_replay_write_once dead_letter_replays_counted dead_letter_never_replayed
dead_letter_state_known dead_letter_steps_in_order dead_letter_times_in_order dead_letter_version
dead_letter_write_once delivery_actor_known delivery_attempt_ended_iff_outcome
delivery_attempt_ends_once delivery_attempt_outcome_known delivery_attempt_phase_known
delivery_attempt_reason_known delivery_begins_pending delivery_edge delivery_ended_says_when
delivery_evidence_never_changes delivery_evidence_source_known delivery_evidence_verdict_known
delivery_not_sent_says_why delivery_once delivery_proof_known delivery_sent_iff_marked
delivery_sent_was_tried delivery_state_known delivery_version_positive delivery_write_once
execution_unit_never_changes execution_unit_one_per_job execution_unit_stays
finding_before_telling finding_confidence_known finding_line_positive finding_numbered
finding_severity_known home_member_role_known in_app_notification_never_changes
in_app_notification_once in_app_notification_read_later job_actor_known
job_attempts_in_budget job_completed_iff_result
job_ended job_enqueued_by_producer job_event_never_changes job_event_never_leaves
job_failed_says_why

job_key_names_its_tenant
job_deadline_write_once
job_leaves_only_when_ended job_once_per_key job_once_per_unit
job_payload_is_object job_stage_output_iff_finished
job_stage_output_write_once
job_type_rule_producer_bounded job_type_rule_role_known job_type_rule_says_something
limit_key_cap_positive limit_key_rate_whole limit_key_set_by_known
outbox_key_never_changes outbox_key_single preference_snapshot_never_changes
preference_snapshot_stays_until_erased provider_account_opened provider_batch_collected_says_when
provider_batch_creating_says_when provider_batch_edge provider_batch_mode_known
provider_batch_once provider_batch_released_was_not_created provider_batch_size
provider_batch_state_known provider_batch_submitted_is_named provider_batch_write_once
provider_call_counts_up provider_call_free_costs_nothing provider_call_kind_known
provider_call_mode_known provider_call_never_changes provider_call_never_leaves
provider_call_priced_iff_cost queue_caps_positive queue_paused_says_why queue_rate_whole
queue_round_turn_left queue_set_by_known queue_weight_in_range recipient_snapshot_never_changes
recipient_snapshot_never_leaves review_above_succeeded review_begins_queued
review_criticised_whole review_erased_says_nothing review_once review_once_per_job
review_once_per_key review_part_asked_whole review_part_never_changes review_part_numbered
review_recipient_before_telling review_recipient_never_changes review_status_known
review_succeeded_says_when review_succeeded_stays review_succeeded_when_told
review_told_after_criticised review_version_positive review_write_once
rewrite_draft_decision_known rewrite_draft_edge rewrite_draft_gate_known
rewrite_draft_held_says_why rewrite_draft_length rewrite_draft_one_judge rewrite_draft_state_known
rewrite_draft_stored_has_verdict rewrite_draft_text_until_decided rewrite_output_of_decided
rewrite_message_text_until_erased rewrite_message_write_once rewrite_output_in_target_locale
rewrite_output_length rewrite_output_never_changes rewrite_output_of_completed
rewrite_output_text_until_erased rewrite_request_begins rewrite_request_cadence
rewrite_request_completed_says_when rewrite_request_content_hash_goes_with_text
rewrite_request_edge rewrite_request_enqueued_iff_job rewrite_request_failed_says_why
rewrite_request_lane_follows_locales rewrite_request_locales_known rewrite_request_once
rewrite_request_one_job rewrite_request_preferences_erased_last
rewrite_request_reveal_follows_completion rewrite_request_status_known
rewrite_request_step_fits_status rewrite_request_step_known rewrite_request_strength_known
rewrite_request_surface_known rewrite_request_whole_once_enqueued rewrite_request_write_once
schedule_catch_up_known schedule_fires_forward schedule_has_one_rhythm schedule_has_one_target
schedule_interval_in_range schedule_never_ticks_back schedule_paused_says_why
schedule_set_by_known schedule_tenants_known_added schedule_tenants_known_changed
schedule_tick_counted schedule_tick_ended schedule_tick_enqueued_iff_job
schedule_tick_once schedule_tick_outcome_known schedule_tick_run_names_it tenant_cap_positive
tenant_set_by_known tenant_weight_in_range worker_run_actor_known worker_run_closed
worker_run_counted_iff_known worker_run_counts_add_up worker_run_finished_iff_outcome
worker_run_once_per_tick worker_run_outcome_known worker_run_trigger_known worker_run_within_bound
worker_state_known
webhook_endpoint_overlap_ends
job_wait_ended_iff_not_waiting job_wait_state_known workflow_item_completed_once
workflow_item_once_per_place workflow_item_state_known workflow_once_per_key
workflow_running_iff_not_ended workflow_state_known workflow_step_items_in_range
workflow_step_policy_known workflow_step_state_known
"""

# PostgreSQL refuses these once per statement, by the rules that end with _follows.
CONSTRAINTS_ON_SQLITE = """
job_attempt_follows job_canceled job_cancel_never_replaced job_envelope_never_replaced
job_event_never_replaced job_ready_leaves job_ready_write_once job_remainder_never_replaced
job_running_leaves job_submitted_leaves job_submitted_write_once job_waiting_leaves
"""

# With the names that PostgreSQL gives to keys and references.
CONSTRAINTS_ON_POSTGRES = """
audit_event_pkey job_attempt_pkey job_cancel_org_id_job_id_fkey job_cancel_pkey
job_envelope_never_truncated job_envelope_pkey job_key_seen_pkey job_once_per_id job_outcome_pkey
job_ready_pkey
job_remainder_never_truncated job_remainder_pkey job_running_pkey job_submitted_follows
job_submitted_pkey job_waiting_pkey
job_deadline_pkey unique_key_pkey
api_key_pkey api_key_window_pkey api_request_pkey console_session_pkey id_name_pkey
artifact_pkey audit_cursor_only_row_check audit_cursor_pkey audit_note_never_truncated
audit_note_pkey audit_seal_never_truncated audit_seal_pkey batch_answer_pkey
batch_item_batch_id_fkey batch_item_pkey budgeted_job_pkey category_pkey
changelist_pkey channel_circuit_pkey
dead_letter_note_org_id_job_id_fkey dead_letter_note_pkey dead_letter_org_id_job_id_fkey
dead_letter_pkey dead_letter_replay_org_id_job_id_fkey dead_letter_replay_pkey
delivery_attempt_org_id_delivery_id_fkey delivery_attempt_pkey
delivery_evidence_org_id_delivery_id_fkey delivery_evidence_pkey delivery_pkey execution_unit_pkey
finding_org_id_review_id_fkey finding_pkey flow_only_row_check flow_pkey handler_transaction_pkey
home_member_org_id_fkey home_member_pkey home_pkey in_app_notification_pkey
job_event_never_truncated
job_stage_org_id_job_id_fkey
job_stage_pkey job_type_rule_pkey lease_extension_pkey limit_key_pkey migration_pkey
outbox_key_pkey preference_answer_org_id_user_id_fkey preference_answer_pkey
preference_snapshot_never_truncated provider_account_pkey provider_batch_pkey
provider_call_never_truncated provider_call_pkey queue_pkey queue_round_pkey
recipient_preference_snapshot_org_id_rewrite_request_id_fkey recipient_preference_snapshot_pkey
recipient_snapshot_never_truncated recipient_snapshot_org_id_rewrite_request_id_fkey
recipient_snapshot_pkey review_org_id_changelist_id_fkey review_part_org_id_review_id_fkey
review_part_pkey review_pkey review_recipient_org_id_review_id_fkey review_recipient_pkey
review_seal_org_id_review_id_fkey review_seal_pkey rewrite_block_pkey
rewrite_draft_org_id_rewrite_request_id_fkey rewrite_draft_pkey
rewrite_message_org_id_rewrite_request_id_fkey rewrite_message_pkey
rewrite_output_org_id_rewrite_request_id_fkey rewrite_output_pkey
rewrite_request_completed_has_output rewrite_request_pkey schedule_pkey tenant_pkey worker_pkey
worker_run_pkey
webhook_cursor_only_row_check webhook_cursor_pkey webhook_endpoint_pkey
job_wait_pkey sent_event_pkey workflow_edge_org_id_workflow_id_fkey workflow_edge_pkey
workflow_item_org_id_workflow_id_fkey workflow_item_pkey workflow_pkey
workflow_step_org_id_workflow_id_fkey workflow_step_pkey
"""


def words(text: str) -> set[str]:
    return set(text.split())


def differences(kind: str, found: set[str], frozen: set[str], place: str) -> str:
    """Advice about new or missing names; empty if there are none."""
    told = ""
    if new := sorted(found - frozen):
        told += f"New {kind}: {new}. Add them to {place} in tests/test_frozen_names.py.\n"
    if gone := sorted(frozen - found):
        told += (
            f"Missing {kind}: {gone}. Users and databases have these names: keep them. If one was "
            f"never released, remove it from {place} in tests/test_frozen_names.py.\n"
        )
    return told


def check(kind: str, found: set[str], frozen: set[str], place: str) -> None:
    told = differences(kind, found, frozen, place)
    assert not told, told


# -- the sources of names


def folders() -> list[Path]:
    """The folders of every distribution of this repository."""
    packages = sorted((ROOT / "packages").glob("*/holdfast*/__init__.py"))
    return [path.parent for path in packages] or [ROOT / "holdfast"]


def import_everything() -> None:
    for folder in folders():
        for found in pkgutil.walk_packages([str(folder)], f"{folder.name}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)


def subclasses(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def literals() -> Iterator[tuple[str, bool]]:
    """Every string of the code and its SQL; True for the beginning of an f-string."""
    for path in (path for folder in folders() for path in sorted(folder.rglob("*.*"))):
        if "telemetry" in path.parts:
            continue  # Log lines have names of their own.
        if path.suffix == ".sql":
            yield from ((text, False) for text in re.findall(r"'([a-z_.]+)'", path.read_text()))
        elif path.suffix == ".py":
            found = source(path)
            yield from ((text, False) for _, text in found.strings)
            yield from ((text, True) for text in found.prefixes)


def audit_events() -> set[str]:
    """The audit events that the code writes, whole or joined from a prefix and a word."""
    frozen = words(AUDIT_EVENTS)
    found = list(literals())
    whole = {text for text, is_prefix in found if not is_prefix}
    prefixes = {text for text, is_prefix in found if is_prefix}
    subjects = {name.split(".")[0] for name in frozen if "." in name}
    shape = re.compile(rf"^({'|'.join(subjects)})\.(?!sql$|toml$|md$|py$|json$|html$)[a-z_]*[a-z]$")
    written = {text for text in whole if shape.match(text)} - words(NOT_AUDIT_EVENTS)
    joined = {
        name
        for name in frozen
        for prefix in prefixes & {name[: end + 1] for end in range(len(name))}
        if name.removeprefix(prefix) in whole
    }
    return written | joined | (frozen & whole)


def stored_words(store: Store) -> dict[str, str]:
    """The closed sets of values that CHECK constraints allow in a column, by table and column."""
    rows = look(store, "SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    one_of = re.compile(r"(\w+) IN\s*\(((?:\s*'\w+'\s*,?)+)\)")
    found: dict[str, set[str]] = {}
    for row in rows:
        for column, values in one_of.findall(row["sql"] or ""):
            if column == "NOT":
                continue  # A condition on a column whose values another constraint lists.
            key = f"{row['name'].removeprefix('holdfast_')}.{column}"
            found.setdefault(key, set()).update(re.findall(r"'(\w+)'", values))
    return {key: " ".join(sorted(values)) for key, values in found.items()}


def rules(store: Store) -> set[str]:
    """Every name that a refused write can return."""
    if store.is_embedded:
        master = look(store, "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        texts = {row["name"]: (row["type"], row["sql"]) for row in master}
        named = {
            name
            for kind, text in texts.values()
            if kind == "table"
            for name in re.findall(r"CONSTRAINT (\w+)", text)
        }
        return named | {
            name
            for name, (_, text) in texts.items()
            if "RAISE(" in text or "CREATE UNIQUE INDEX" in text
        }
    named_rows = look(
        store,
        "SELECT conname AS name FROM pg_constraint"
        " WHERE connamespace = 'holdfast'::regnamespace AND contype <> 'n'"
        " UNION SELECT tgname FROM pg_trigger"
        " JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid"
        " WHERE relnamespace = 'holdfast'::regnamespace AND NOT tgisinternal"
        " AND prosrc LIKE '%RAISE EXCEPTION%'"
        " UNION SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
        " WHERE relnamespace = 'holdfast'::regnamespace AND indisunique",
    )
    return {row["name"] for row in named_rows}


def metrics() -> set[str]:
    """Every metric with its labels, as ``name{label,label}``."""
    made = Metrics(Holdfast(settings=Settings(db="sqlite:")))
    sets = [one for extension in installed().values() for one in extension.gauges()]
    gauges = [*GAUGES, *(gauge for one in sets for gauge in one.gauges)]
    found = {gauge.name: sorted(gauge.labels) for gauge in gauges}
    for collector in made.registry._collector_to_names:
        for family in collector.describe():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found.setdefault(name, sorted(getattr(collector, "_labelnames", ())))
    return {f"{name}{{{','.join(labels)}}}" for name, labels in found.items()}


def settings_keys(kind: type = Settings, prefix: str = "") -> Iterator[str]:
    items = {field.name: field for field in dataclasses.fields(kind)}
    if items.pop("sections", None) is not None:
        items |= {
            name: known_sections()[name]
            for extension in installed().values()
            for name in extension.settings
        }
    for name, field in items.items():
        below = [kind for shape, kind in field.metadata.items() if shape in SHAPES]
        if below and dataclasses.is_dataclass(below[0]):
            yield from settings_keys(below[0], f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


SHAPES = ("section", "table", "rows")


# -- the comparison


def test_the_stored_states_are_those_that_were_frozen(migrated_sqlite_url: str) -> None:
    store = open_store(migrated_sqlite_url)
    found = stored_words(store)
    store.close()
    frozen = dict(re.findall(r"^(\S+):((?:.*\n)(?: .*\n)*)", STATES, re.M))

    check("columns with a closed set of words", set(found), set(frozen), "STATES")
    for column, values in found.items():
        check(f"words of {column}", words(values), words(frozen[column]), "STATES")
    # The state of a job without an outcome is its place, which the view job names.
    places = {"queued", "processing", "batch_submitted"}
    assert {state.value for state in State} == words(frozen["job_outcome.state"]) | places


def test_the_audit_events_are_those_that_were_frozen() -> None:
    check("audit events", audit_events(), words(AUDIT_EVENTS), "AUDIT_EVENTS")


def test_the_audit_events_are_those_of_the_documentation() -> None:
    page = (ROOT / "docs" / "reference" / "audit-events.md").read_text()
    documented = set(re.findall(r"^\| `([a-z_.]+)` \|", page, re.M))

    check(
        "audit events in docs/reference/audit-events.md",
        documented,
        words(AUDIT_EVENTS),
        "AUDIT_EVENTS",
    )


def test_the_error_classes_are_those_that_were_frozen() -> None:
    import_everything()
    found = {
        kind.error_class
        for kind in (Failure, *subclasses(Failure))
        if kind.__module__.startswith("holdfast")
    }

    check("error classes", found, words(ERROR_CLASSES), "ERROR_CLASSES")


def test_the_metrics_and_their_labels_are_those_that_were_frozen() -> None:
    check("metrics", metrics(), words(METRICS), "METRICS")


def runs_of_extensions() -> Iterator[str]:
    for extension in installed().values():
        yield from extension.runs


def test_the_runs_are_those_that_were_frozen() -> None:
    check("runs", {*BUILT_IN_RUNS, *runs_of_extensions()}, words(RUNS), "RUNS")


def test_the_settings_keys_are_those_that_were_frozen() -> None:
    check("settings keys", set(settings_keys()), words(SETTINGS_KEYS), "SETTINGS_KEYS")


def test_the_constraints_are_those_that_were_frozen(store: Store) -> None:
    own, place = (
        (CONSTRAINTS_ON_SQLITE, "CONSTRAINTS_ON_SQLITE")
        if store.is_embedded
        else (CONSTRAINTS_ON_POSTGRES, "CONSTRAINTS_ON_POSTGRES")
    )

    frozen = words(CONSTRAINTS_ON_BOTH) | words(own)

    check("constraints", rules(store), frozen, f"CONSTRAINTS_ON_BOTH or {place}")


def test_a_rename_is_reported_with_the_place_to_change() -> None:
    told = differences("runs", {"a", "c"}, {"a", "b"}, "RUNS")

    assert "New runs: ['c']. Add them to RUNS in tests/test_frozen_names.py." in told
    assert "Missing runs: ['b']." in told
