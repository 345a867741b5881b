// The server's replicator with a peer that is not Settee: PouchDB behind express-pouchdb. It pulls, pushes, and continues
// after the peer was unavailable.
'use strict';

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const path = require('node:path');
const { isDeepStrictEqual } = require('node:util');
const { SERVER, databaseUrl, freshName, http, remote, scratchDirectory, suite } = require('./support.js');

// Tests that are expected to fail, with reasons. An entry whose test passes fails the run.
const NOT_YET = {
  'a compressible attachment is pushed':
    'it is sent compressed with `encoding`, as by CouchDB, and express-pouchdb does not support `encoding`',
};

// The replicator retries a failed replication after half a minute or more.
const test = suite(NOT_YET, 120_000);

const BINARY = Buffer.from(Array.from({ length: 200_000 }, (_, at) => (at * 7 + (at >> 9)) % 256));

// A peer in its own process. It must be restarted with the port of its first start to keep its address.
async function foreign(t) {
  const directory = scratchDirectory();
  let child;
  const server = {
    async start(port = 0) {
      child = spawn(process.execPath, [path.join(__dirname, 'foreign-server.js'), directory, String(port)], {
        stdio: ['ignore', 'pipe', 'ignore'],
      });
      const [printed] = await once(child.stdout, 'data');
      server.port = Number(printed);
      server.url = `http://127.0.0.1:${server.port}`;
    },
    async kill() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
    database: () => remote(t, { server: server.url }),
  };
  t.after(() => server.kill());
  await server.start();
  return server;
}

const replicate = (body) => http('POST', `${SERVER}/_replicate`, body);

async function fill(db, count, prefix = 'doc') {
  const docs = Array.from({ length: count }, (_, at) => ({ _id: `${prefix}${at}`, at, text: 'text '.repeat(at % 9) }));
  const failed = (await db.bulkDocs(docs)).filter((row) => !row.ok);
  assert.deepEqual(failed, []);
}

// Returns every leaf of every document, and the bytes of the winners' attachments.
async function contents(db) {
  const leaves = {};
  const { results } = await db.changes({ since: 0, style: 'all_docs' });
  for (const { id, changes, deleted } of results) {
    const docs = await db.get(id, { open_revs: changes.map((change) => change.rev), revs: true });
    const plain = docs.map(({ ok: { _attachments, ...doc } }) => doc);
    leaves[id] = { docs: plain.sort((a, b) => (a._rev < b._rev ? -1 : 1)), attachments: {} };
    const winner = deleted ? {} : await db.get(id);
    for (const name of Object.keys(winner._attachments ?? {})) {
      leaves[id].attachments[name] = (await db.getAttachment(id, name)).toString('base64');
    }
  }
  return leaves;
}

// Reports only the ids of documents that differ, because documents may be large.
function assertSame(one, other) {
  assert.deepEqual(Object.keys(one).sort(), Object.keys(other).sort());
  const differ = Object.keys(one).filter((id) => !isDeepStrictEqual(one[id], other[id]));
  assert.deepEqual(differ, []);
}

// Writes documents with conflicts, deletions, attachments and several revisions.
async function variety(db, { compressible = true } = {}) {
  await fill(db, 150);
  const first = await db.get('doc1');
  await db.bulkDocs(
    [
      { _id: 'doc1', _rev: '2-aa', _revisions: { start: 2, ids: ['aa', first._rev.slice(2)] }, side: 'a' },
      { _id: 'doc1', _rev: '2-bb', _revisions: { start: 2, ids: ['bb', first._rev.slice(2)] }, side: 'b' },
    ],
    { new_edits: false },
  );
  await db.remove(await db.get('doc2'));
  for (let at = 0; at < 4; at += 1) await db.put({ ...(await db.get('doc3')), at });
  await db.put({
    _id: 'attached',
    _attachments: {
      'a text.txt': {
        content_type: compressible ? 'text/plain' : 'image/x',
        data: Buffer.from('Grüße aus 東京\n').toString('base64'),
      },
      'b.bin': { content_type: 'application/octet-stream', data: BINARY.toString('base64') },
    },
  });
  await db.put({ ...(await db.get('attached')), edited: true });
}

async function until(holds, what) {
  const limit = Date.now() + 60_000;
  while (!(await holds())) {
    assert.ok(Date.now() < limit, `timeout: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const found = (db, id) => db.get(id).then(() => true, (error) => assert.equal(error.status, 404));

test('the server pulls from a foreign server', async (t) => {
  const db = (await foreign(t)).database();
  await variety(db);
  const here = remote(t, { url: databaseUrl(), skip_setup: true });
  const result = await replicate({ source: db.name, target: new URL(here.name).pathname.slice(1), create_target: true });
  assert.deepEqual([result.ok, result.history[0].doc_write_failures], [true, 0]);
  assertSame(await contents(here), await contents(db));
  const again = await replicate({ source: db.name, target: new URL(here.name).pathname.slice(1), create_target: true });
  assert.equal(again.no_changes, true);
});

test('the server pushes to a foreign server', async (t) => {
  const db = (await foreign(t)).database();
  const here = remote(t);
  await db.info();
  await variety(here, { compressible: false });
  const result = await replicate({ source: new URL(here.name).pathname.slice(1), target: db.name });
  assert.deepEqual([result.ok, result.history[0].doc_write_failures], [true, 0]);
  assertSame(await contents(db), await contents(here));
  await here.put({ _id: 'later' });
  const again = await replicate({ source: new URL(here.name).pathname.slice(1), target: db.name });
  // Counters accumulate over sessions, as in CouchDB.
  const written = again.history[0].docs_written - result.history[0].docs_written;
  assert.deepEqual([again.ok, written], [true, 1], 'it continues from the checkpoint');
});

test('a compressible attachment is pushed', async (t) => {
  const db = (await foreign(t)).database();
  const here = remote(t);
  await db.info();
  await here.put({ _id: 'a', _attachments: { t: { content_type: 'text/plain', data: btoa('a text '.repeat(99)) } } });
  await replicate({ source: new URL(here.name).pathname.slice(1), target: db.name });
  assert.equal((await db.getAttachment('a', 't')).toString(), 'a text '.repeat(99));
});

test('doc_ids: only these documents are replicated', async (t) => {
  const db = (await foreign(t)).database();
  await fill(db, 10);
  const here = remote(t);
  await here.info();
  await replicate({ source: db.name, target: new URL(here.name).pathname.slice(1), doc_ids: ['doc3', 'doc4', 'none'] });
  assert.deepEqual((await here.allDocs()).rows.map((row) => row.id), ['doc3', 'doc4']);
});

test('documents in _replicator keep two servers in sync, also after an outage of one', async (t) => {
  const server = await foreign(t);
  const db = server.database();
  await db.info();
  const here = remote(t);
  await here.info();
  const name = new URL(here.name).pathname.slice(1);
  const docs = [
    { _id: freshName('pull'), source: db.name, target: name, continuous: true },
    { _id: freshName('push'), source: name, target: db.name, continuous: true },
  ];
  for (const doc of docs) {
    await http('PUT', `${SERVER}/_replicator/${doc._id}`, doc);
    t.after(async () => {
      const { _rev } = await http('GET', `${SERVER}/_replicator/${doc._id}`);
      await http('DELETE', `${SERVER}/_replicator/${doc._id}?rev=${_rev}`);
    });
  }
  await db.put({ _id: 'from-there' });
  await here.put({ _id: 'from-here' });
  await until(() => found(here, 'from-there'), 'from-there is pulled');
  await until(() => found(db, 'from-here'), 'from-here is pushed');
  await server.kill();
  await here.put({ _id: 'while-away' });
  await server.start(server.port);
  await db.put({ _id: 'unseen' });
  await until(() => found(db, 'while-away'), 'while-away is pushed by a retry');
  await until(() => found(here, 'unseen'), 'unseen is pulled by a retry');
  // A restarted peer has another instance_start_time, so each replication restarts.
  const running = async () => {
    const { docs: states } = await http('GET', `${SERVER}/_scheduler/docs?states=running`);
    return docs.every(({ _id }) => states.some((state) => state.doc_id === _id));
  };
  await until(running, 'both replications run');
});
