CREATE TABLE holdfast.visit (
    org_id {uuid} NOT NULL,
    visitor text NOT NULL,
    PRIMARY KEY (org_id, visitor)
);
