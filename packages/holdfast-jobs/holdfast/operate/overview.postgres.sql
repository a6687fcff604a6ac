-- Only PostgreSQL has a statement timeout.

-- bound_reading :one — crosses tenants: limit the time of a reading, and force index scans
-- If it expects fewer rows than the limit, PostgreSQL would scan and sort a whole table; for a join it
-- would scan the jobs once. This applies until the end of the transaction.
SELECT set_config('statement_timeout', '2s', true),
       set_config('enable_sort', 'off', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('jit', 'off', true);
