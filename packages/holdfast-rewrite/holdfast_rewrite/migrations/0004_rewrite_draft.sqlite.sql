-- An output is delivered: as long as its draft waits for a verdict or a person, there is none.
CREATE TRIGGER rewrite_output_of_decided BEFORE INSERT ON holdfast_rewrite_output
WHEN EXISTS (
    SELECT 1 FROM holdfast_rewrite_draft AS draft
    WHERE draft.org_id = NEW.org_id AND draft.rewrite_request_id = NEW.rewrite_request_id
      AND draft.state <> 'stored')
BEGIN
    SELECT RAISE(ABORT, 'rewrite_output_of_decided: a draft is stored after its verdict');
END;
