-- A kept answer is deleted when its item is recorded.
CREATE TRIGGER batch_item_forgets_answer AFTER UPDATE OF is_open ON holdfast_batch_item
WHEN OLD.is_open = 1 AND NEW.is_open = 0 BEGIN
    DELETE FROM holdfast_batch_answer
    WHERE org_id = OLD.org_id AND batch_id = OLD.batch_id
      AND batch_item_index = OLD.batch_item_index;
END;
