-- The statement that enqueues the jobs of released steps. The databases build objects differently.

-- insert_released :affected — crosses tenants: enqueue the jobs of released steps
