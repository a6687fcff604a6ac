GRANT SELECT, INSERT ON holdfast.id_name TO holdfast_engine;
