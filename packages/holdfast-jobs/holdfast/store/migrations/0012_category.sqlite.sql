CREATE TRIGGER audit_note_stays_in_its_tenant BEFORE INSERT ON holdfast_audit_note
WHEN NOT EXISTS (
    SELECT 1 FROM holdfast_job_event AS event
    WHERE event.id = NEW.event_id AND event.org_id = NEW.org_id)
BEGIN
    SELECT RAISE(ABORT, 'audit_note_stays_in_its_tenant: a note must refer to an event of its tenant');
END;
