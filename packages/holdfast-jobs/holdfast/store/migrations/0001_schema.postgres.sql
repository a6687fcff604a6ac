CREATE SCHEMA IF NOT EXISTS holdfast;

-- Rules that a CHECK cannot express are triggers that call this function. The error reports the
-- trigger's name as the constraint name.
CREATE FUNCTION holdfast.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
END $$;

-- Two roles: the engine serves every tenant, a tenant sees only its own rows. The engine may assume
-- the tenant role, so that a handler's own statements are restricted in the same way. Roles belong
-- to the whole server: another database may have created them already, or may be creating them now.
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
    RAISE EXCEPTION 'The roles holdfast_engine and holdfast_tenant are missing or incomplete, and % may not create them.', current_user
        USING HINT = format(
            'As an administrator: CREATE ROLE holdfast_engine NOLOGIN; CREATE ROLE holdfast_tenant NOLOGIN;'
            ' GRANT holdfast_tenant TO holdfast_engine; GRANT holdfast_engine TO %I;', current_user);
END $$;

GRANT USAGE ON SCHEMA holdfast TO holdfast_engine, holdfast_tenant;
