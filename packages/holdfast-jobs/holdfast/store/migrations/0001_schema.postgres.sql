CREATE SCHEMA IF NOT EXISTS holdfast;

-- Every rule of the contract that a CHECK cannot say is a trigger that calls this. The trigger's
-- name comes back as the constraint's name.
CREATE FUNCTION holdfast.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
END $$;

-- Two roles: the engine serves every tenant, a tenant sees itself. The engine may become a tenant,
-- so that a handler's own statements meet the same wall. Roles belong to the whole server: another
-- database may have made them already, or may be making them right now.
DO $$
DECLARE
    role_name text;
    member_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['holdfast_engine', 'holdfast_tenant'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
            END;
        END IF;
    END LOOP;
    FOR role_name, member_name IN
        VALUES ('holdfast_tenant', 'holdfast_engine'), ('holdfast_engine', current_user::text)
    LOOP
        IF NOT pg_has_role(member_name, role_name, 'USAGE') THEN
            BEGIN
                EXECUTE format('GRANT %I TO %I', role_name, member_name);
            EXCEPTION WHEN unique_violation THEN NULL;
            END;
        END IF;
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'The roles holdfast_engine and holdfast_tenant are not ready, and % may not make them so.', current_user
        USING HINT = format(
            'As an administrator: CREATE ROLE holdfast_engine NOLOGIN; CREATE ROLE holdfast_tenant NOLOGIN;'
            ' GRANT holdfast_tenant TO holdfast_engine; GRANT holdfast_engine TO %I;', current_user);
END $$;

GRANT USAGE ON SCHEMA holdfast TO holdfast_engine, holdfast_tenant;
