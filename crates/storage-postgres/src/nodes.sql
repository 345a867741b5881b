-- Objects that version 2 added for several concurrent nodes.
CREATE INDEX commits_xid ON commits (xid);

-- The processes that use these tables. A process without a name is not a member yet.
CREATE TABLE nodes (
    id bytea PRIMARY KEY,
    name text,
    address text,
    started timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- Claims: work that only one node should do. A claim without a node is free.
CREATE TABLE claims (
    key text PRIMARY KEY,
    node bytea,
    epoch bigint NOT NULL,
    since timestamptz NOT NULL DEFAULT now()
);
CREATE SEQUENCE claim_epochs;

-- Makes the last commit of a shard, regardless of its version.
CREATE FUNCTION settee_drop(of_shard bigint, by_node bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    last_version bigint;
    last_is_dropped boolean;
BEGIN
    SELECT version, is_dropped INTO last_version, last_is_dropped
        FROM commits WHERE shard = of_shard ORDER BY version DESC LIMIT 1;
    IF last_is_dropped THEN
        RETURN;
    END IF;
    INSERT INTO commits (shard, version, token, is_dropped, node)
        VALUES (of_shard, coalesce(last_version, 0) + 1, '', true, by_node);
    DELETE FROM commits WHERE shard = of_shard AND version <= last_version;
    INSERT INTO dropped VALUES (of_shard) ON CONFLICT DO NOTHING;
END $$;
