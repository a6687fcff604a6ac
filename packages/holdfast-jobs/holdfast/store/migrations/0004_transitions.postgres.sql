-- SQLite numbers events by its rowid. Here the key starts with the tenant, and sealing reads the
-- events of all tenants in order.
ALTER TABLE holdfast.audit_event ADD PRIMARY KEY (org_id, id);
ALTER TABLE holdfast.job_envelope ALTER COLUMN event_id
    SET DEFAULT nextval('holdfast.audit_event_id_seq');
ALTER TABLE holdfast.job_running ALTER COLUMN started_event_id
    SET DEFAULT nextval('holdfast.audit_event_id_seq');
CREATE INDEX job_event_in_order ON holdfast.audit_event (id);

-- Jobs that wait for a provider batch, oldest first. For the few rows that it expects, PostgreSQL
-- would sort all of them instead of walking job_ready_oldest in order; SQLite walks.
CREATE INDEX job_ready_batched ON holdfast.job_ready (queue, created_at, job_id)
    WHERE limit_key = '~batch';

CREATE TRIGGER job_event_never_truncated BEFORE TRUNCATE ON holdfast.audit_event
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse('the audit is append-only');
CREATE TRIGGER job_remainder_never_truncated BEFORE TRUNCATE ON holdfast.job_remainder
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse('the audit is append-only');

-- The transitions of jobs. Inserting a fact (an envelope, a claim, an attempt, a submission, an
-- outcome) moves its job: the trigger deletes the row of the place that the job leaves, and raises if
-- it is not there. So no client can record an outcome of a job that is not running under that lease,
-- and a job is in one place. Once per statement, not per row. SECURITY DEFINER: a tenant may enqueue,
-- and may not write these tables in any other way.
--
-- Two transactions may move one job: a settle and a rescue. The second waits for the first, finds the
-- row deleted, and raises job_moved; the store then runs it again.

-- Indexes are used regardless of the statistics at planning time: a transition table has none, and a
-- place may have been empty. With "= ANY (ARRAY[…])" PostgreSQL can only look the row up. With "=" it
-- may read the whole place in the order of its index and compare each row with all that were added:
-- then a drain fell from 27,000 to 1,600 jobs a second.
CREATE FUNCTION holdfast.enqueue_envelopes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_single boolean;
    ready bigint;
BEGIN
    -- Without grouping and sorting, the trigger takes 55 microseconds instead of 75.
    INSERT INTO holdfast.audit_event
        (id, org_id, name, attempt, actor_type, actor_id, at, jobs, events, digest)
    OVERRIDING SYSTEM VALUE
    SELECT event_id, org_id, 'job.enqueued', 1, actor_type, actor_id, created_at, ARRAY[id], 1,
           {hash(concat_ws(':', {digest enqueue added}, max_attempts, stage, pipeline_version))}
    FROM added WHERE (SELECT count(*) FROM added) = 1;
    is_single := FOUND;
    IF NOT is_single THEN
        INSERT INTO holdfast.audit_event
            (id, org_id, name, attempt, actor_type, actor_id, at, jobs, events, digest)
        OVERRIDING SYSTEM VALUE
        SELECT max(event_id), org_id, 'job.enqueued', 1, actor_type, actor_id, created_at,
               array_agg(id ORDER BY event_id), count(*),
               {hash(string_agg(digest, '' ORDER BY event_id))}
        FROM (
            SELECT event_id, org_id, actor_type, actor_id, created_at, id,
                   concat_ws(':', {digest enqueue added}, max_attempts, stage, pipeline_version)
                       AS digest,
                   event_id - row_number() OVER (
                       PARTITION BY org_id, actor_type, actor_id, created_at ORDER BY event_id) AS run
            FROM added) AS fact
        GROUP BY org_id, actor_type, actor_id, created_at, run;
    END IF;
    INSERT INTO holdfast.job_ready
        (queue, limit_key, org_id, turn, job_id, created_at, lease_token, unit)
    SELECT coalesce(queue, origin_queue), limit_key, org_id, coalesce(turn, id), id, created_at, 0,
           coalesce(job_type || unit_key, '')
    FROM added WHERE not_before_at IS NULL;
    GET DIAGNOSTICS ready = ROW_COUNT;
    IF NOT is_single OR ready = 0 THEN
        INSERT INTO holdfast.job_waiting
            (org_id, job_id, queue, limit_key, turn, created_at, not_before_at, lease_token, unit)
        SELECT org_id, id, coalesce(queue, origin_queue), limit_key, coalesce(turn, id), created_at,
               not_before_at, 0, coalesce(job_type || unit_key, '')
        FROM added WHERE not_before_at IS NOT NULL;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER job_enqueued AFTER INSERT ON holdfast.job_envelope
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION holdfast.enqueue_envelopes();

CREATE FUNCTION holdfast.start_jobs() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    wanted bigint;
    moved bigint;
    strange bigint;
    early bigint := 0;
BEGIN
    WITH gone AS (
        DELETE FROM holdfast.job_ready AS ready USING added
        WHERE ready.queue = ANY (ARRAY[added.queue]) AND ready.limit_key = ANY (ARRAY[added.limit_key])
          AND ready.org_id = ANY (ARRAY[added.org_id]) AND ready.turn = ANY (ARRAY[added.turn])
          AND ready.job_id = added.job_id AND ready.lease_token = added.lease_token - 1
        RETURNING 1
    ),
    noted AS (
        INSERT INTO holdfast.audit_event
            (id, org_id, name, attempt, actor_type, actor_id, at, jobs, events)
        OVERRIDING SYSTEM VALUE
        SELECT max(started_event_id), org_id, 'job.started', started_attempt, 'system', claimed_by,
               claimed_at, array_agg(job_id ORDER BY started_event_id), count(*)
        FROM (
            SELECT started_event_id, org_id, started_attempt, claimed_by, claimed_at, job_id,
                   started_event_id - row_number() OVER (
                       PARTITION BY org_id, started_attempt, claimed_by, claimed_at
                       ORDER BY started_event_id) AS run
            FROM added) AS fact
        GROUP BY org_id, started_attempt, claimed_by, claimed_at, run
    )
    SELECT (SELECT count(*) FROM added), (SELECT count(*) FROM gone), (
        SELECT count(*) FROM added
        WHERE (started_attempt = attempt_count + 1 AND CASE WHEN lease_token = 1
            THEN (attempt_count, max_attempts, stage) = (
                SELECT 0, asked.max_attempts, asked.stage FROM holdfast.job_envelope AS asked
                WHERE asked.org_id = added.org_id AND asked.id = added.job_id)
            ELSE (attempt_count, max_attempts, stage) = (
                SELECT newest.attempt_count, newest.max_attempts, newest.stage
                FROM holdfast.job_attempt AS newest
                WHERE newest.org_id = added.org_id AND newest.job_id = added.job_id
                ORDER BY newest.number DESC LIMIT 1) END) IS NOT TRUE)
    INTO wanted, moved, strange;
    IF moved < wanted THEN
        DELETE FROM holdfast.job_waiting AS waiting USING added
        WHERE waiting.org_id = ANY (ARRAY[added.org_id]) AND waiting.job_id = ANY (ARRAY[added.job_id])
          AND waiting.queue = added.queue AND waiting.limit_key = added.limit_key
          AND waiting.turn = added.turn AND waiting.lease_token = added.lease_token - 1;
        GET DIAGNOSTICS early = ROW_COUNT;
    END IF;
    IF moved + early <> wanted THEN
        RAISE EXCEPTION 'a job that is not waiting cannot be claimed; it was claimed or has ended'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'job_moved';
    END IF;
    IF strange > 0 THEN
        RAISE EXCEPTION 'a claim continues with the stage and the attempts of its job'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'job_attempts';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER job_started AFTER INSERT ON holdfast.job_running
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION holdfast.start_jobs();

CREATE FUNCTION holdfast.end_attempts() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    wanted bigint;
    strange bigint;
    kept bigint;
    moved bigint;
    of_batch bigint := 0;
BEGIN
    SELECT count(*), count(*) FILTER (WHERE number - 1 <> coalesce((
        SELECT newest.number FROM holdfast.job_attempt AS newest
        WHERE newest.org_id = added.org_id AND newest.job_id = added.job_id
          AND newest.number <> added.number
        ORDER BY newest.number DESC LIMIT 1), 0))
    INTO wanted, strange FROM added;
    UPDATE holdfast.job_running AS running
    SET stage = added.stage, attempt_count = added.attempt_count, max_attempts = added.max_attempts
    FROM added
    WHERE added.keeps_lease AND running.org_id = ANY (ARRAY[added.org_id])
      AND running.job_id = ANY (ARRAY[added.job_id])
      AND running.lease_token = added.lease_token
      AND CASE WHEN added.stage <> running.stage THEN added.attempt_count = 0
               ELSE added.attempt_count - running.attempt_count IN (0, 1)
                    AND added.max_attempts = running.max_attempts END;
    GET DIAGNOSTICS kept = ROW_COUNT;
    DELETE FROM holdfast.job_running AS running USING added
    WHERE NOT added.keeps_lease AND running.org_id = ANY (ARRAY[added.org_id])
      AND running.job_id = ANY (ARRAY[added.job_id]) AND running.lease_token = added.lease_token
      AND running.started_event_id = added.started_event_id
      AND running.claimed_at = added.claimed_at AND running.claimed_by = added.claimed_by
      AND running.started_attempt = added.started_attempt
      AND running.stage IN (added.stage, '') AND running.max_attempts = added.max_attempts
      AND added.attempt_count - running.attempt_count IN (0, 1);
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF kept + moved < wanted THEN
        DELETE FROM holdfast.job_submitted AS submitted USING (
            SELECT ended.org_id, ended.job_id, ended.lease_token, ended.started_event_id,
                   ended.claimed_at, ended.claimed_by, ended.started_attempt, ended.stage
            FROM added AS ended
            JOIN holdfast.job_envelope AS asked
              ON asked.org_id = ended.org_id AND asked.id = ended.job_id
            LEFT JOIN holdfast.job_attempt AS earlier
              ON earlier.org_id = ended.org_id AND earlier.job_id = ended.job_id
             AND earlier.number = ended.number - 1
            WHERE NOT ended.keeps_lease
              AND ended.attempt_count - coalesce(earlier.attempt_count, 0) IN (0, 1)
              AND ended.max_attempts = coalesce(earlier.max_attempts, asked.max_attempts)) AS added
        WHERE submitted.org_id = ANY (ARRAY[added.org_id]) AND submitted.job_id = ANY (ARRAY[added.job_id])
          AND submitted.lease_token = added.lease_token
          AND submitted.started_event_id = added.started_event_id
          AND submitted.claimed_at = added.claimed_at AND submitted.claimed_by = added.claimed_by
          AND submitted.started_attempt = added.started_attempt
          AND submitted.stage IN (added.stage, '');
        GET DIAGNOSTICS of_batch = ROW_COUNT;
    END IF;
    IF strange > 0 OR kept + moved + of_batch <> wanted THEN
        IF strange > 0 OR EXISTS (
            SELECT FROM added
            JOIN (SELECT org_id, job_id, lease_token, started_event_id, TRUE AS is_running
                  FROM holdfast.job_running
                  UNION ALL
                  SELECT org_id, job_id, lease_token, started_event_id, FALSE
                  FROM holdfast.job_submitted) AS held
              ON held.org_id = added.org_id AND held.job_id = added.job_id
             AND held.lease_token = added.lease_token
             AND CASE WHEN added.keeps_lease THEN held.is_running
                      ELSE held.started_event_id = added.started_event_id END)
        THEN
            RAISE EXCEPTION 'attempts are numbered without gaps, and attempt_count grows by one and resets only at the next stage'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'job_attempts';
        END IF;
        RAISE EXCEPTION 'an attempt of a job that is not running under this lease'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'job_moved';
    END IF;
    INSERT INTO holdfast.job_ready
        (queue, limit_key, org_id, turn, job_id, created_at, lease_token, unit)
    SELECT job.origin_queue, job.limit_key, job.org_id, coalesce(job.turn, job.id), job.id,
           job.created_at, added.lease_token, coalesce(job.job_type || job.unit_key, '')
    FROM added
    JOIN holdfast.job_envelope AS job ON job.org_id = added.org_id AND job.id = added.job_id
    WHERE NOT added.keeps_lease AND added.not_before_at IS NULL;
    INSERT INTO holdfast.job_waiting
        (org_id, job_id, queue, limit_key, turn, created_at, not_before_at, lease_token, unit)
    SELECT job.org_id, job.id, job.origin_queue, job.limit_key, coalesce(job.turn, job.id),
           job.created_at, added.not_before_at, added.lease_token,
           coalesce(job.job_type || job.unit_key, '')
    FROM added
    JOIN holdfast.job_envelope AS job ON job.org_id = added.org_id AND job.id = added.job_id
    WHERE NOT added.keeps_lease AND added.not_before_at IS NOT NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER job_attempt_ended AFTER INSERT ON holdfast.job_attempt
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION holdfast.end_attempts();

CREATE FUNCTION holdfast.submit_jobs() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    wanted bigint;
    moved bigint;
BEGIN
    SELECT count(*) INTO wanted FROM added;
    DELETE FROM holdfast.job_running AS running USING added
    WHERE running.org_id = ANY (ARRAY[added.org_id]) AND running.job_id = ANY (ARRAY[added.job_id])
      AND running.lease_token = added.lease_token
      AND running.started_event_id = added.started_event_id
      AND running.claimed_at = added.claimed_at AND running.claimed_by = added.claimed_by
      AND running.started_attempt = added.started_attempt
      AND running.queue = added.queue AND running.stage IN (added.stage, '');
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved <> wanted THEN
        RAISE EXCEPTION 'a job that is not running under this lease cannot be submitted'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'job_moved';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER job_submitted_once AFTER INSERT ON holdfast.job_submitted
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION holdfast.submit_jobs();

-- The attempts that a job has counted.
CREATE FUNCTION holdfast.attempts_of(org_id uuid, job_id uuid) RETURNS smallint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((
        SELECT newest.attempt_count FROM holdfast.job_attempt AS newest
        WHERE newest.org_id = attempts_of.org_id AND newest.job_id = attempts_of.job_id
        ORDER BY newest.number DESC LIMIT 1), 0::smallint)
$$;

CREATE FUNCTION holdfast.end_jobs() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    wanted bigint;
    moved bigint;
    further bigint;
BEGIN
    WITH gone AS (
        DELETE FROM holdfast.job_running AS running USING added
        WHERE running.org_id = ANY (ARRAY[added.org_id]) AND running.job_id = ANY (ARRAY[added.job_id])
          AND running.lease_token = added.lease_token
          AND running.started_event_id = added.started_event_id
          AND running.claimed_at = added.claimed_at AND running.claimed_by = added.claimed_by
          AND running.started_attempt = added.started_attempt
          -- A job whose count was below zero can be dead-lettered.
          AND added.attempt_count = greatest(running.attempt_count, 0)
              + CASE added.state WHEN 'failed' THEN 1 ELSE 0 END
        RETURNING 1
    ),
    noted AS (
        INSERT INTO holdfast.audit_event
            (id, org_id, name, attempt, actor_type, actor_id, at, jobs, events, digest)
        OVERRIDING SYSTEM VALUE
        SELECT max(event_id), org_id, 'job.succeeded', attempt_count + 1, 'system', settled_by,
               finished_at, array_agg(job_id ORDER BY event_id), count(*),
               {hash(string_agg(digest, '' ORDER BY event_id))}
        FROM (
            SELECT event_id, org_id, attempt_count, settled_by, finished_at, job_id,
                   {digest outcome added} AS digest,
                   event_id - row_number() OVER (
                       PARTITION BY org_id, attempt_count, settled_by, finished_at
                       ORDER BY event_id) AS run
            FROM added WHERE event_id IS NOT NULL) AS fact
        GROUP BY org_id, attempt_count, settled_by, finished_at, run
    )
    SELECT (SELECT count(*) FROM added), (SELECT count(*) FROM gone) INTO wanted, moved;
    IF moved < wanted THEN
        DELETE FROM holdfast.job_submitted AS submitted USING added
        WHERE submitted.org_id = ANY (ARRAY[added.org_id]) AND submitted.job_id = ANY (ARRAY[added.job_id])
          AND submitted.lease_token = added.lease_token
          AND submitted.started_event_id = added.started_event_id
          AND submitted.claimed_at = added.claimed_at AND submitted.claimed_by = added.claimed_by
          AND submitted.started_attempt = added.started_attempt
          AND added.attempt_count = holdfast.attempts_of(added.org_id, added.job_id)
              + CASE added.state WHEN 'failed' THEN 1 ELSE 0 END;
        GET DIAGNOSTICS further = ROW_COUNT;
        moved := moved + further;
    END IF;
    -- Only a cancel ends a job that waits. It names no claim: a worker that has lost its lease must
    -- not cancel the job.
    IF moved < wanted THEN
        DELETE FROM holdfast.job_waiting AS waiting USING added
        WHERE added.state = 'canceled' AND added.started_event_id IS NULL
          AND waiting.org_id = ANY (ARRAY[added.org_id]) AND waiting.job_id = ANY (ARRAY[added.job_id])
          AND waiting.lease_token = added.lease_token
          AND added.attempt_count = holdfast.attempts_of(added.org_id, added.job_id);
        GET DIAGNOSTICS further = ROW_COUNT;
        moved := moved + further;
    END IF;
    IF moved < wanted THEN
        DELETE FROM holdfast.job_ready AS ready
        USING (SELECT job.org_id, job.id, job.limit_key, coalesce(job.turn, job.id) AS turn,
                      place.queue, added.lease_token
               FROM added
               JOIN holdfast.job_envelope AS job
                 ON job.org_id = added.org_id AND job.id = added.job_id
               CROSS JOIN LATERAL (SELECT job.origin_queue UNION SELECT job.queue) AS place (queue)
               WHERE added.state = 'canceled' AND added.started_event_id IS NULL
                 AND added.attempt_count = holdfast.attempts_of(added.org_id, added.job_id)) AS gone
        WHERE ready.queue = ANY (ARRAY[gone.queue]) AND ready.limit_key = ANY (ARRAY[gone.limit_key])
          AND ready.org_id = ANY (ARRAY[gone.org_id]) AND ready.turn = ANY (ARRAY[gone.turn])
          AND ready.job_id = gone.id
          AND ready.lease_token = gone.lease_token;
        GET DIAGNOSTICS further = ROW_COUNT;
        moved := moved + further;
    END IF;
    IF moved <> wanted THEN
        IF EXISTS (
            SELECT FROM added
            JOIN holdfast.job_running AS running
              ON running.org_id = ANY (ARRAY[added.org_id]) AND running.job_id = ANY (ARRAY[added.job_id])
             AND running.lease_token = added.lease_token
             AND running.started_event_id = added.started_event_id)
        THEN
            RAISE EXCEPTION 'attempt_count grows by one with a failure, and with no other outcome'
                USING ERRCODE = 'check_violation', CONSTRAINT = 'job_attempts';
        END IF;
        RAISE EXCEPTION 'an outcome of a job that is not running under this lease'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'job_moved';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER job_ended AFTER INSERT ON holdfast.job_outcome
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION holdfast.end_jobs();

CREATE FUNCTION holdfast.promote_jobs() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    WITH due AS (
        DELETE FROM holdfast.job_waiting AS waiting USING changed
        WHERE changed.not_before_at IS NULL
          AND waiting.org_id = ANY (ARRAY[changed.org_id]) AND waiting.job_id = ANY (ARRAY[changed.job_id])
        RETURNING waiting.*
    )
    INSERT INTO holdfast.job_ready
        (queue, limit_key, org_id, turn, job_id, created_at, lease_token, unit)
    SELECT due.queue, due.limit_key, due.org_id, due.turn, due.job_id, due.created_at,
           due.lease_token, due.unit
    FROM due;
    RETURN NULL;
END $$;
CREATE TRIGGER job_promoted AFTER UPDATE ON holdfast.job_waiting
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION holdfast.promote_jobs();

-- The row trigger is for the few jobs that change their queue; a promotion names every queue again.
CREATE FUNCTION holdfast.check_queue() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM holdfast.job_envelope AS job
        WHERE job.org_id = NEW.org_id AND job.id = NEW.job_id
          AND NEW.queue IN (job.origin_queue, job.queue))
    THEN
        RAISE EXCEPTION 'a job waits in a queue that its enqueue named'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'job_waiting_follows';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER job_waiting_keeps_its_queues AFTER UPDATE OF queue ON holdfast.job_waiting
    FOR EACH ROW WHEN (OLD.queue <> NEW.queue) EXECUTE FUNCTION holdfast.check_queue();

-- A place changes only by these triggers. Renewals and passes over due jobs update some columns.
CREATE FUNCTION holdfast.refuse_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a job moves when its attempt or outcome is recorded, not by writing %', TG_TABLE_NAME
        USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
END $$;
CREATE TRIGGER job_ready_follows BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE
    ON holdfast.job_ready FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0)
    EXECUTE FUNCTION holdfast.refuse_move();
CREATE TRIGGER job_waiting_follows BEFORE INSERT OR DELETE OR TRUNCATE
    ON holdfast.job_waiting FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0)
    EXECUTE FUNCTION holdfast.refuse_move();
CREATE TRIGGER job_running_follows BEFORE DELETE OR TRUNCATE
    ON holdfast.job_running FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0)
    EXECUTE FUNCTION holdfast.refuse_move();
CREATE TRIGGER job_submitted_follows BEFORE UPDATE OR DELETE OR TRUNCATE
    ON holdfast.job_submitted FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0)
    EXECUTE FUNCTION holdfast.refuse_move();
CREATE TRIGGER job_waiting_write_once BEFORE UPDATE OF org_id, job_id, limit_key, turn, created_at,
    lease_token, unit
    ON holdfast.job_waiting FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0)
    EXECUTE FUNCTION holdfast.refuse_move();
CREATE TRIGGER job_running_write_once BEFORE UPDATE OF org_id, job_id, turn, started_event_id,
    started_attempt, claimed_at, claimed_by, lease_token, attempt_count, max_attempts, queue,
    limit_key, stage
    ON holdfast.job_running FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0)
    EXECUTE FUNCTION holdfast.refuse_move();

-- A job is deleted after it has ended, with its facts; the audit says so.
CREATE FUNCTION holdfast.refuse_unfinished() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM holdfast.job_outcome AS outcome
                   WHERE outcome.org_id = OLD.org_id AND outcome.job_id = OLD.id) THEN
        RAISE EXCEPTION 'a job that has not ended cannot be deleted'
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER job_leaves_only_when_ended BEFORE DELETE ON holdfast.job_envelope
    FOR EACH ROW EXECUTE FUNCTION holdfast.refuse_unfinished();
CREATE FUNCTION holdfast.delete_facts() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    DELETE FROM holdfast.job_outcome AS fact USING gone
    WHERE fact.org_id = gone.org_id AND fact.job_id = gone.id;
    DELETE FROM holdfast.job_attempt AS fact USING gone
    WHERE fact.org_id = gone.org_id AND fact.job_id = gone.id;
    DELETE FROM holdfast.job_cancel AS fact USING gone
    WHERE fact.org_id = gone.org_id AND fact.job_id = gone.id;
    DELETE FROM holdfast.job_key_seen AS fact USING gone
    WHERE fact.org_id = gone.org_id AND fact.job_id = gone.id;
    RETURN NULL;
END $$;
CREATE TRIGGER job_facts_leave AFTER DELETE ON holdfast.job_envelope
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION holdfast.delete_facts();
CREATE TRIGGER job_envelope_never_truncated BEFORE TRUNCATE ON holdfast.job_envelope
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse('jobs are deleted when they have ended');
CREATE TRIGGER job_outcome_stays BEFORE DELETE OR TRUNCATE ON holdfast.job_outcome
    FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION holdfast.refuse_move();
CREATE TRIGGER job_attempt_stays BEFORE DELETE OR TRUNCATE ON holdfast.job_attempt
    FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION holdfast.refuse_move();
CREATE TRIGGER job_cancel_stays BEFORE DELETE OR TRUNCATE ON holdfast.job_cancel
    FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION holdfast.refuse_move();

-- Rows of the places are deleted with every move. Vacuum early and in small steps.
DO $$
DECLARE
    place text;
BEGIN
    FOREACH place IN ARRAY ARRAY['job_ready', 'job_waiting', 'job_running', 'job_submitted'] LOOP
        EXECUTE format(
            'ALTER TABLE holdfast.%I SET (autovacuum_vacuum_scale_factor = 0.02,'
            ' autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_insert_scale_factor = 0.5,'
            ' autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 5000,'
            ' autovacuum_vacuum_cost_delay = 1)', place);
    END LOOP;
END $$;
