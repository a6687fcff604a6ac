CREATE TRIGGER audit_note_stays_in_its_tenant BEFORE INSERT ON holdfast_audit_note
WHEN NOT EXISTS (
    SELECT 1 FROM (
        SELECT event.id, event.events FROM holdfast_audit_event AS event
        WHERE event.org_id = NEW.org_id AND event.id >= NEW.event_id
        ORDER BY event.id LIMIT 1) AS found
    WHERE found.id - found.events < NEW.event_id)
BEGIN
    SELECT RAISE(ABORT, 'audit_note_stays_in_its_tenant: a note must refer to an event of its tenant');
END;
