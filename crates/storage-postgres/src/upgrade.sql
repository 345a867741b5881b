-- Upgrades tables of version 1 to version 2, together with nodes.sql.
SET LOCAL search_path TO {schema};

ALTER TABLE commits ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id();
ALTER TABLE commits ADD COLUMN node bigint NOT NULL DEFAULT 0;
ALTER TABLE commits ALTER COLUMN node DROP DEFAULT;

-- Prevents commits by a server of the earlier version.
DROP FUNCTION settee_fence(bigint, bigint, bytea, bytea, bytea);
DROP FUNCTION settee_drop(bigint, bytea);
DROP TABLE settee_owner;

UPDATE settee_schema SET version = {version}, made_by = '{product}';
