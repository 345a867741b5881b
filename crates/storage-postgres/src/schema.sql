-- The tables of one Settee, but for those of keyspaces. {schema}, {version} and {product} are filled in.
SET LOCAL search_path TO {schema};

-- What this is, for every program that comes later.
-- The layout is that of the entries, which is not this crate's.
CREATE TABLE settee_schema (
    version integer NOT NULL,
    made_by text NOT NULL,
    layout bigint NOT NULL DEFAULT 0,
    synced bigint NOT NULL DEFAULT 0
);
INSERT INTO settee_schema (version, made_by) VALUES ({version}, '{product}');

-- The server that may commit.
CREATE TABLE settee_owner (id bytea NOT NULL, since timestamptz NOT NULL DEFAULT now());

-- One row for each commit, inserted and never changed; rows other than the last ones of a shard go.
CREATE TABLE commits (
    shard bigint NOT NULL,
    version bigint NOT NULL,
    token bytea NOT NULL,
    head bytea,
    is_dropped boolean NOT NULL DEFAULT false,
    at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT commits_pkey PRIMARY KEY (shard, version)
);

-- Shards whose entries are still to be deleted.
CREATE TABLE dropped (shard bigint PRIMARY KEY);

-- Makes a commit the next one of its shard. Two that do so at the same time insert the same key, so one of them fails.
CREATE FUNCTION settee_fence(of_shard bigint, expected bigint, by_token bytea, new_head bytea, by_owner bytea)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    last_version bigint;
    last_head bytea;
    last_is_dropped boolean;
BEGIN
    PERFORM FROM settee_owner WHERE id = by_owner;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another server has taken the database over' USING ERRCODE = 'ST002';
    END IF;
    SELECT version, head, is_dropped INTO last_version, last_head, last_is_dropped
        FROM commits WHERE shard = of_shard ORDER BY version DESC LIMIT 1;
    IF coalesce(last_version, 0) <> expected OR last_is_dropped THEN
        RAISE EXCEPTION 'the shard is at version %', coalesce(last_version, 0) USING ERRCODE = 'ST001';
    END IF;
    INSERT INTO commits (shard, version, token, head)
        VALUES (of_shard, expected + 1, by_token, coalesce(new_head, last_head));
    IF expected % 64 = 63 THEN
        DELETE FROM commits WHERE shard = of_shard AND version < expected - 64;
    END IF;
END $$;

-- Makes the last commit of a shard, whatever it was before.
CREATE FUNCTION settee_drop(of_shard bigint, by_owner bytea)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    last_version bigint;
    last_is_dropped boolean;
BEGIN
    PERFORM FROM settee_owner WHERE id = by_owner;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another server has taken the database over' USING ERRCODE = 'ST002';
    END IF;
    SELECT version, is_dropped INTO last_version, last_is_dropped
        FROM commits WHERE shard = of_shard ORDER BY version DESC LIMIT 1;
    IF last_is_dropped THEN
        RETURN;
    END IF;
    INSERT INTO commits (shard, version, token, is_dropped) VALUES (of_shard, coalesce(last_version, 0) + 1, '', true);
    DELETE FROM commits WHERE shard = of_shard AND version <= last_version;
    INSERT INTO dropped VALUES (of_shard) ON CONFLICT DO NOTHING;
END $$;
