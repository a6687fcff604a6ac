-- An ordinary view would run with its owner's rights and show every tenant to everybody.
ALTER VIEW holdfast.rewrite_job SET (security_invoker = true);
GRANT SELECT ON holdfast.rewrite_job TO holdfast_engine;
