CREATE TABLE holdfast.pager_page (
    org_id {uuid} NOT NULL,
    number text NOT NULL,
    PRIMARY KEY (org_id, number)
);
