-- The tables of one Settee, but for those of keyspaces and of nodes. {schema}, {version} and {product} are filled in.
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

-- One row for each commit, inserted and never changed; old rows other than the last ones of a shard go.
CREATE TABLE commits (
    shard bigint NOT NULL,
    version bigint NOT NULL,
    token bytea NOT NULL,
    head bytea,
    is_dropped boolean NOT NULL DEFAULT false,
    at timestamptz NOT NULL DEFAULT now(),
    -- The transaction: by it others find the commits that they have not seen.
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- Who made it.
    node bigint NOT NULL,
    CONSTRAINT commits_pkey PRIMARY KEY (shard, version)
);

-- Shards whose entries are still to be deleted.
CREATE TABLE dropped (shard bigint PRIMARY KEY);
