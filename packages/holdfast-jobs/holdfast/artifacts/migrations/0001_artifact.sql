-- One row per file that a job reads or produces. The bytes are stored elsewhere, under a key
-- derived from the id. No foreign key to the job: an artifact expires independently.
CREATE TABLE holdfast.artifact (
    org_id {uuid} NOT NULL,
    id {uuid} NOT NULL,
    job_id {uuid},
    stage text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    media_type text NOT NULL,
    access text NOT NULL,
    owner_type text NOT NULL,
    owner_id text NOT NULL,
    place text NOT NULL,
    created_at {instant} NOT NULL,
    expires_at {instant} NOT NULL,

    state text NOT NULL DEFAULT 'writing',
    bytes bigint,
    sha256 text,
    stored_at {instant},
    removed_at {instant},
    erase_at {instant},

    PRIMARY KEY (org_id, id),
    CONSTRAINT artifact_once_per_place UNIQUE (place),
    CONSTRAINT artifact_state_known CHECK (state IN ('writing', 'stored', 'removed')),
    CONSTRAINT artifact_kind_known CHECK (kind IN ('input', 'output')),
    CONSTRAINT artifact_access_known CHECK (access IN ('tenant', 'owner')),
    CONSTRAINT artifact_owner_known CHECK (owner_type IN ('user', 'system', 'api_key')),
    CONSTRAINT artifact_name_bounded CHECK (length(name) BETWEEN 1 AND 255),
    CONSTRAINT artifact_place_is_its_id CHECK (
        place = substr(CAST(id AS text), 35, 2) || '/' || substr(CAST(id AS text), 33, 2) || '/'
            || CAST(id AS text)),
    CONSTRAINT artifact_stored_iff_measured CHECK (
        (sha256 IS NULL) = (bytes IS NULL) AND (sha256 IS NULL) = (stored_at IS NULL)
        AND (state <> 'stored' OR sha256 IS NOT NULL)
        AND (state <> 'writing' OR sha256 IS NULL)),
    CONSTRAINT artifact_measure_is_sound CHECK (
        bytes >= 0 AND length(sha256) = 64 AND trim(sha256, '0123456789abcdef') = ''),
    CONSTRAINT artifact_removed_iff_time CHECK ((state = 'removed') = (removed_at IS NOT NULL)),
    CONSTRAINT artifact_erased_only_if_removed CHECK (erase_at IS NULL OR state = 'removed'),
    CONSTRAINT artifact_expires_later CHECK (expires_at > created_at)
);

CREATE INDEX artifact_of_job ON holdfast.artifact (org_id, job_id) WHERE job_id IS NOT NULL;
CREATE INDEX artifact_unfinished ON holdfast.artifact (created_at) WHERE state = 'writing';
CREATE INDEX artifact_expiring ON holdfast.artifact (expires_at) WHERE state = 'stored';
CREATE INDEX artifact_to_erase ON holdfast.artifact (erase_at) WHERE erase_at IS NOT NULL;
CREATE INDEX artifact_gone ON holdfast.artifact (removed_at) WHERE state = 'removed';

{refuse artifact_begins_writing BEFORE INSERT ON holdfast.artifact
WHEN NEW.state <> 'writing'
SAYING 'an artifact row must be inserted before its content is written'};

{refuse artifact_edge BEFORE UPDATE OF state ON holdfast.artifact
WHEN OLD.state <> NEW.state AND NOT (
    (OLD.state = 'writing' AND NEW.state IN ('stored', 'removed'))
    OR (OLD.state = 'stored' AND NEW.state = 'removed'))
SAYING 'invalid state transition of an artifact'};

{refuse artifact_write_once BEFORE UPDATE ON holdfast.artifact
WHEN NEW.org_id <> OLD.org_id OR NEW.id <> OLD.id OR NEW.job_id IS DISTINCT FROM OLD.job_id
    OR NEW.stage <> OLD.stage OR NEW.kind <> OLD.kind OR NEW.name <> OLD.name
    OR NEW.media_type <> OLD.media_type OR NEW.access <> OLD.access
    OR NEW.owner_type <> OLD.owner_type OR NEW.owner_id <> OLD.owner_id
    OR NEW.place <> OLD.place OR NEW.created_at <> OLD.created_at
    OR (OLD.sha256 IS NOT NULL AND (NEW.sha256 IS DISTINCT FROM OLD.sha256
        OR NEW.bytes IS DISTINCT FROM OLD.bytes OR NEW.stored_at IS DISTINCT FROM OLD.stored_at))
    OR (OLD.state <> 'writing' AND OLD.sha256 IS NULL AND NEW.sha256 IS NOT NULL)
SAYING 'the metadata and the checksum of an artifact are immutable'};

{refuse artifact_leaves_only_when_erased BEFORE DELETE ON holdfast.artifact
WHEN OLD.state <> 'removed' OR OLD.erase_at IS NOT NULL
SAYING 'an artifact row cannot be deleted while its content exists'};
