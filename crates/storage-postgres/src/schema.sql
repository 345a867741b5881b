-- The tables of one server or cluster, except those of keyspaces and nodes. The placeholders {schema}, {version} and
-- {product} are replaced.
SET LOCAL search_path TO {schema};

-- Version of the tables, and layout of the entries, which the crates above define.
CREATE TABLE settee_schema (
    version integer NOT NULL,
    made_by text NOT NULL,
    layout bigint NOT NULL DEFAULT 0,
    synced bigint NOT NULL DEFAULT 0
);
INSERT INTO settee_schema (version, made_by) VALUES ({version}, '{product}');

-- One row for each commit. Rows are not updated; old rows are removed, except the last one of each shard.
CREATE TABLE commits (
    shard bigint NOT NULL,
    version bigint NOT NULL,
    token bytea NOT NULL,
    head bytea,
    is_dropped boolean NOT NULL DEFAULT false,
    at timestamptz NOT NULL DEFAULT now(),
    -- The transaction, by which other processes find the commits that an earlier snapshot did not show.
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- The process that made the commit.
    node bigint NOT NULL,
    CONSTRAINT commits_pkey PRIMARY KEY (shard, version)
);

-- Dropped shards whose entries have not been deleted yet.
CREATE TABLE dropped (shard bigint PRIMARY KEY);
