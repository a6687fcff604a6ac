-- The names from which ids of tenants and projects were derived, so that listings can show them.
CREATE TABLE holdfast.id_name (
    id {uuid} NOT NULL PRIMARY KEY,
    name text NOT NULL,
    created_at {instant} NOT NULL,
    CONSTRAINT id_name_length CHECK (length(name) BETWEEN 1 AND 63)
);
