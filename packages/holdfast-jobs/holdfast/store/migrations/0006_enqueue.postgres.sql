-- Functions of an enqueue that read no table. Enqueueing itself is in 0012.

-- The patterns and names of secret.py. Texts are checked one by one, in decoded form; field names
-- are checked too. A fixed part of every pattern is searched first: that takes 10 microseconds for
-- 200 bytes, and the patterns 300.
CREATE FUNCTION holdfast.carries_secret(document jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT document::text ~* '"(password|passwd|passphrase|secret|client[-_ ]secret|api[-_ ]key|apikey|access[-_ ]token|refresh[-_ ]token|auth[-_ ]token|bearer[-_ ]token|private[-_ ]key|authorization|secret[-_ ]key|aws[-_ ]secret[-_ ]access[-_ ]key|connection[-_ ]string)": "[^"]'
        OR document::text
            ~ '-----BEGIN|sk-|[sr]k_(live|test)_|A[KS]IA|gh[pousr]_|github_pat_|glpat-|xox|AIza|npm_|hf_|eyJ|://'
        AND EXISTS (
            SELECT FROM (
                SELECT jsonb_path_query(document, 'strict $.** ? (@.type() == "string")')
                UNION ALL
                SELECT jsonb_path_query(document, 'strict $.** ? (@.type() == "object").keyvalue().key')
            ) AS texts (part)
            WHERE part #>> '{}' ~ '-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----|(?<![A-Za-z0-9_-])(sk-[A-Za-z0-9_-]{20,}|[sr]k_(live|test)_[A-Za-z0-9]{16,100}|A[KS]IA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20,100}|xox[abeoprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{35}|npm_[A-Za-z0-9]{36}|hf_[a-z]{2,10}_[A-Za-z0-9]{8,64}_[A-Za-z0-9_-]{32,64}|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})(?![A-Za-z0-9_-])|(?<![A-Za-z0-9+.-])[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,100}:[^\s/:@]{1,200}@[^\s/]')
$$;

-- A version 7 id: the leading timestamp keeps index inserts local and ids in time order.
CREATE FUNCTION holdfast.new_id(at timestamptz) RETURNS uuid
LANGUAGE plpgsql VOLATILE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    random_bytes bytea := decode(replace(gen_random_uuid()::text, '-', ''), 'hex');
BEGIN
    RETURN encode(
        set_byte(set_byte(
            substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3)
                || substring(random_bytes FROM 7),
            6, (get_byte(random_bytes, 6) & 15) | 112),
            8, (get_byte(random_bytes, 8) & 63) | 128), 'hex')::uuid;
END $$;

-- The milliseconds of a version 7 id.
CREATE FUNCTION holdfast.ms_of(id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ('x' || substring(replace(id::text, '-', '') FOR 12))::bit(48)::bigint
$$;

-- The same id with a shifted timestamp, as in ids.py.
CREATE FUNCTION holdfast.shift_id(id uuid, by_ms bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT overlay(id::text PLACING
        overlay(encode(substring(int8send(greatest(holdfast.ms_of(id) + by_ms, 0)) FROM 3), 'hex')
                PLACING '-' FROM 9 FOR 0)
        FROM 1 FOR 13)::uuid
$$;

REVOKE ALL ON FUNCTION holdfast.carries_secret, holdfast.new_id, holdfast.ms_of, holdfast.shift_id
    FROM PUBLIC;
