CREATE SCHEMA IF NOT EXISTS holdfast;

-- Every rule of the contract that a CHECK cannot say is a trigger that calls this. The trigger's
-- name comes back as the constraint's name.
CREATE FUNCTION holdfast.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
END $$;

-- Two roles: the engine serves every tenant, a tenant sees itself. Roles belong to the whole
-- server, so another database may have made them already, or may be making them right now.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['holdfast_engine', 'holdfast_tenant'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            END IF;
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION 'Role % is missing and % may not create it.', wanted, current_user
                    USING HINT = format('As an administrator: CREATE ROLE %I NOLOGIN; GRANT %I TO %I;',
                                        wanted, wanted, current_user);
        END;
    END LOOP;
    -- Granting is a no-op where it is done already, and a superuser needs no grant.
    IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        EXECUTE format('GRANT holdfast_engine, holdfast_tenant TO %I', current_user);
    END IF;
END $$;

GRANT USAGE ON SCHEMA holdfast TO holdfast_engine, holdfast_tenant;
