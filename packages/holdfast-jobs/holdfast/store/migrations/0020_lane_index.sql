-- Ticks whose run has not begun; upkeep looks for those that were left behind.
CREATE INDEX schedule_tick_taken ON holdfast.schedule_tick (recorded_at) WHERE outcome = 'taken';
