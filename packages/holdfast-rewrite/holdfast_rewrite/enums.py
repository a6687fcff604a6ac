"""The enums of the complaint rewrite."""

from __future__ import annotations

from enum import StrEnum

ORCHESTRATOR_RUN = "rewrite_orchestrator"
JOB_TYPE = "complaint_rewrite"
STAGE = "rewrite"
JUDGE_TYPE = "rewrite_judge"
JUDGE_STAGE = "judge"

CLASSIFIER_VERSION = "v1"
CONTEXT_VERSION = "v1"
POLICY_VERSION = "v1"

LONGEST_MESSAGE = 1_500
LONGEST_REWRITE = 600


class Topic(StrEnum):
    """The topic of a message."""

    NOISE = "noise"
    CLEANLINESS = "cleanliness"
    PRIVACY = "privacy"
    GUESTS = "guests"
    SCHEDULE = "schedule"
    COMMUNICATION = "communication"
    OTHER = "other"


class MessageIntent(StrEnum):
    """The sender's intent."""

    REQUEST = "request"
    BOUNDARY = "boundary"
    CONCERN = "concern"
    CLARIFICATION = "clarification"


class Strength(StrEnum):
    """How much a message must change."""

    LIGHT_TOUCH = "light_touch"
    FULL_REFRAME = "full_reframe"


class Level(StrEnum):
    """The confidence of a classifier."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class SafetyFlag(StrEnum):
    """Additional observations of a classifier; advisory and never shown."""

    NONE = "none"
    EMOTIONAL_INTENSITY = "emotional_intensity"
    AMBIGUOUS_INTENT = "ambiguous_intent"


class Surface(StrEnum):
    """Where a message was written. The first is also called weekly_feedback."""

    WEEKLY_HARMONY = "weekly_harmony"
    DIRECT_MESSAGE = "direct_message"
    OTHER = "other"

    @classmethod
    def read(cls, word: str) -> Surface:
        """Parse a surface name, with either name of the weekly one. Raises ValueError."""
        return cls("weekly_harmony" if word == "weekly_feedback" else word)


class Lane(StrEnum):
    """Whether a rewrite also translates."""

    SAME_LANGUAGE = "same_language"
    CROSS_LANGUAGE = "cross_language"

    @classmethod
    def between(cls, source_locale: str, target_locale: str) -> Lane:
        return cls.SAME_LANGUAGE if source_locale == target_locale else cls.CROSS_LANGUAGE


class HomeRole(StrEnum):
    """The role of a member: owner, head tenant or housemate."""

    OWNER = "owner"
    HOUSEMATE = "housemate"


class PowerMode(StrEnum):
    """Which of the two has more power in the home. It affects the tone only."""

    HIGHER_SENDER = "higher_sender"
    HIGHER_RECIPIENT = "higher_recipient"
    PEER = "peer"


class ToneMultiplier(StrEnum):
    """How much gentler than usual a rewrite must be."""

    EXTRA_GENTLE = "extra_gentle"
    GENTLE = "gentle"
    NEUTRAL = "neutral"


class Tone(StrEnum):
    """The policy's tone."""

    GENTLE = "gentle"
    NEUTRAL = "neutral"
    CALM = "calm"


class Directness(StrEnum):
    """How direct a rewrite may be. Balanced is the maximum."""

    SOFT = "soft"
    BALANCED = "balanced"


class Temperature(StrEnum):
    """Whether a rewrite also de-escalates."""

    COOL_DOWN = "cool_down"
    STEADY = "steady"


class RepairTiming(StrEnum):
    """When a recipient prefers to resolve conflicts."""

    COOL_OFF = "cool_off"
    TALK_SOON = "talk_soon"
    CHECK_IN = "check_in"


class Mark(StrEnum):
    """The validation result for one aspect of a rewrite."""

    PASS = "pass"  # noqa: S105
    WARN = "warn"
    FAIL = "fail"


class Code(StrEnum):
    """A problem of a text. All codes but warnings keep it from being stored."""

    VULGARITY = "vulgarity"
    SLUR = "slur"
    PERSONAL_ATTACK = "personal_attack"
    BLAME = "blame"
    AUTHORITY = "authority"
    PREFERENCE_DISCLOSURE = "preference_disclosure"
    MEDICAL = "medical"
    NEW_FACT = "new_fact"
    NON_TARGET_LOCALE = "non_target_locale"
    SARCASM_WARN = "sarcasm_warn"
    HEDGE_WARN = "hedge_warn"

    @property
    def is_hard(self) -> bool:
        return self not in (Code.SARCASM_WARN, Code.HEDGE_WARN)


class Status(StrEnum):
    """The status of a request, equal to its job's state."""

    QUEUED = "queued"
    PROCESSING = "processing"
    BATCH_SUBMITTED = "batch_submitted"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class Step(StrEnum):
    """The progress of the orchestrator with a request."""

    RECEIVED = "received"
    QUEUED = "queued"
    CLASSIFIED = "classified"
    CONTEXT_BUILT = "context_built"
    ROUTED = "routed"
    ENQUEUED = "enqueued"
    JUDGING = "judging"
    HELD = "held"
    COMPLETED = "completed"
    REVEALED = "revealed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def event(self) -> str:
        """Return the audit event of the step."""
        return f"rewrite_{self.value}"


class VerdictBy(StrEnum):
    """Who decides that a rewrite which passed the gate is delivered. Part of the route."""

    GATE = "gate"
    JUDGE = "judge"
    PERSON = "person"


class FailureCode(StrEnum):
    """Why a request failed, if its job has no error class. For operators.

    Senders see only the failure.
    """

    NOT_IN_HOME = "not_in_home"
    SELF_RECIPIENT = "self_recipient"
    SURFACE_NOT_ALLOWED = "surface_not_allowed"
    EMPTY_MESSAGE = "empty_message"
    MESSAGE_TOO_LONG = "message_too_long"
    BLOCKED = "blocked"
    CADENCE = "cadence"
    LOCALE_INVALID = "locale_invalid"
    CONTEXT_PACK_FAILED = "context_pack_failed"
    REQUEST_INVALID = "request_invalid"
    NO_ROUTE = "no_route"
    DIRECTORY_FAILED = "directory_failed"
    ENQUEUE_FAILED = "enqueue_failed"
    ABANDONED = "abandoned"
    ERASED = "erased"
    HELD_REJECTED = "held_rejected"
    HELD_EXPIRED = "held_expired"
    DEFECT = "defect"
