DO $$
DECLARE
    tenanted text;
BEGIN
    FOREACH tenanted IN ARRAY ARRAY['dead_letter_replay', 'dead_letter_note',
        'execution_unit'] LOOP
        EXECUTE format('ALTER TABLE holdfast.%I ENABLE ROW LEVEL SECURITY', tenanted);
        EXECUTE format('ALTER TABLE holdfast.%I FORCE ROW LEVEL SECURITY', tenanted);
        EXECUTE format(
            'CREATE POLICY engine_serves_all ON holdfast.%I TO holdfast_engine'
            ' USING (true) WITH CHECK (true)', tenanted);
        EXECUTE format(
            'CREATE POLICY tenant_sees_itself ON holdfast.%I TO holdfast_tenant'
            ' USING (org_id = (SELECT holdfast.current_tenant()))'
            ' WITH CHECK (org_id = (SELECT holdfast.current_tenant()))',
            tenanted);
    END LOOP;
END $$;
GRANT SELECT, INSERT ON holdfast.dead_letter_replay, holdfast.dead_letter_note TO holdfast_engine;
GRANT UPDATE (outcome, error_class, ended_at) ON holdfast.dead_letter_replay TO holdfast_engine;
GRANT SELECT ON holdfast.dead_letter_replay, holdfast.dead_letter_note TO holdfast_tenant;

-- Replays and notes are deleted with their dead letter, never before it.
CREATE FUNCTION holdfast.refuse_early_leave() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM holdfast.dead_letter AS letter
               WHERE letter.org_id = OLD.org_id AND letter.job_id = OLD.job_id) THEN
        RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'check_violation',
            CONSTRAINT = TG_NAME;
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER dead_letter_replay_never_leaves BEFORE DELETE ON holdfast.dead_letter_replay
    FOR EACH ROW EXECUTE FUNCTION holdfast.refuse_early_leave('a replay is deleted only with its dead letter');
CREATE TRIGGER dead_letter_note_never_leaves BEFORE DELETE ON holdfast.dead_letter_note
    FOR EACH ROW EXECUTE FUNCTION holdfast.refuse_early_leave('a note is deleted only with its dead letter');

REVOKE ALL ON FUNCTION holdfast.refuse_early_leave FROM PUBLIC;

GRANT SELECT, INSERT, UPDATE ON holdfast.job_type_rule TO holdfast_engine;
-- DELETE is for a unit whose job was refused in the same transaction; execution_unit_stays keeps
-- every other. A tenant has no privileges here: it cannot act as the producer.
GRANT SELECT, INSERT, DELETE ON holdfast.execution_unit TO holdfast_engine;

-- Refuses jobs that only a producer may enqueue. A replay is enqueued by the operator who replays
-- the dead letter, with the unit of the original. Once per statement, after the insert: an enqueue
-- with an existing key inserts nothing and is not refused. SECURITY DEFINER, because the tenant
-- role may enqueue and may not read these tables.
CREATE FUNCTION holdfast.refuse_other_producers() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    refused record;
BEGIN
    SELECT rule.job_type, rule.producer, added.unit_key INTO refused
    FROM added
    JOIN holdfast.job_type_rule AS rule
      ON rule.job_type = added.job_type AND rule.producer IS NOT NULL
    WHERE NOT EXISTS (
            SELECT FROM holdfast.execution_unit AS unit
            WHERE unit.org_id = added.org_id AND unit.job_type = added.job_type
              AND unit.unit_key = added.unit_key
              AND unit.job_id = coalesce(added.replay_of, added.id))
       OR (added.replay_of IS NOT NULL AND NOT EXISTS (
            SELECT FROM holdfast.dead_letter AS letter
            WHERE letter.org_id = added.org_id AND letter.job_id = added.replay_of
              AND letter.state = 'replaying'))
    ORDER BY added.unit_key NULLS FIRST
    LIMIT 1;
    IF FOUND AND refused.unit_key IS NULL THEN
        RAISE EXCEPTION 'jobs of type % are enqueued by % only, which names their execution unit',
            refused.job_type, refused.producer
            USING ERRCODE = 'check_violation', CONSTRAINT = 'job_needs_its_unit';
    ELSIF FOUND THEN
        RAISE EXCEPTION 'jobs of type % are enqueued by % only', refused.job_type, refused.producer
            USING ERRCODE = 'check_violation', CONSTRAINT = 'job_enqueued_by_producer';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER job_enqueued_by_producer AFTER INSERT ON holdfast.job_envelope
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT
    EXECUTE FUNCTION holdfast.refuse_other_producers();

CREATE FUNCTION holdfast.keep_execution_unit() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM holdfast.job_envelope AS job
               WHERE job.org_id = OLD.org_id AND job.id = OLD.job_id)
        OR EXISTS (SELECT FROM holdfast.job_remainder AS gone
                   WHERE gone.org_id = OLD.org_id AND gone.job_id = OLD.job_id) THEN
        RAISE EXCEPTION USING MESSAGE = 'the execution unit of an enqueued job cannot be deleted',
            ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER execution_unit_stays BEFORE DELETE ON holdfast.execution_unit
    FOR EACH ROW EXECUTE FUNCTION holdfast.keep_execution_unit();
REVOKE ALL ON FUNCTION holdfast.refuse_other_producers, holdfast.keep_execution_unit FROM PUBLIC;

-- Refuses replays of job types that are never replayed: job_type_rule has the reason.
CREATE FUNCTION holdfast.refuse_never_replayed() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (
        SELECT FROM holdfast.job_type_rule AS rule
        WHERE rule.job_type = NEW.job_type AND rule.replay_refusal IS NOT NULL)
    THEN
        RAISE EXCEPTION 'jobs of type % are never replayed', NEW.job_type
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER dead_letter_never_replayed BEFORE UPDATE OF state ON holdfast.dead_letter
    FOR EACH ROW WHEN (NEW.state = 'replaying' AND OLD.state <> 'replaying')
    EXECUTE FUNCTION holdfast.refuse_never_replayed();
REVOKE ALL ON FUNCTION holdfast.refuse_never_replayed() FROM PUBLIC;
