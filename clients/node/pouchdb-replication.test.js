// PouchDB's replication with databases in memory and in leveldb. The replicator runs in this process and the server is the
// peer.
'use strict';

const assert = require('node:assert/strict');
const { createHash } = require('node:crypto');
const { PouchDB, event, ids, local, remote, startServer, suite, until } = require('./support.js');

// Tests that are expected to fail, with reasons. An entry whose test passes fails the run.
const NOT_YET = {};

const test = suite(NOT_YET);

const MANY = 2000;
const TEXT = Buffer.from('Grüße aus 東京\n');
const BINARY = Buffer.from(Array.from({ length: 300_000 }, (_, at) => (at * 7 + (at >> 9)) % 256));

const documents = (count, prefix = 'doc') =>
  Array.from({ length: count }, (_, at) => ({
    _id: `${prefix}${String(at).padStart(5, '0')}`,
    at,
    text: `text of ${at} `.repeat(at % 7),
  }));

async function fill(db, docs) {
  const failed = (await db.bulkDocs(docs)).filter((row) => !row.ok);
  assert.deepEqual(failed, []);
}

// Returns every leaf of every document, with its body and its attachments. Digests of texts are omitted, because CouchDB
// computes them from the compressed form, and `revpos`, because PouchDB sets it to the generation of the received revision.
async function contents(db) {
  const { results } = await db.changes({ since: 0, style: 'all_docs' });
  const leaves = {};
  for (const { id, changes } of results) {
    const docs = await db.get(id, { open_revs: changes.map((change) => change.rev), revs: true });
    leaves[id] = docs
      .map(({ ok }) => {
        const attachments = Object.entries(ok._attachments ?? {}).map(([name, { content_type, digest, length }]) =>
          content_type.startsWith('text/') ? { name, content_type, length } : { name, content_type, length, digest },
        );
        return { ...ok, _attachments: attachments.sort((a, b) => (a.name < b.name ? -1 : 1)) };
      })
      .sort((a, b) => (a._rev < b._rev ? -1 : 1));
  }
  return leaves;
}

// Returns the winners with their bodies in one request.
async function winners(db) {
  return (await db.allDocs({ include_docs: true })).rows.map(({ doc: { _attachments, ...doc } }) => doc);
}

async function assertSame(one, other) {
  const [left, right] = [await contents(one), await contents(other)];
  assert.deepEqual(Object.keys(left).sort(), Object.keys(right).sort());
  assert.deepEqual(left, right);
  assert.deepEqual(await winners(one), await winners(other));
}

// Edits the document in both databases, so that a replication creates a conflict.
async function editBoth(one, other, id, change) {
  for (const [side, db] of [['one', one], ['other', other]]) {
    const doc = await db.get(id);
    await db.put({ ...doc, ...change(side) });
  }
}

for (const adapter of ['memory', 'leveldb']) {
  test(`${adapter}: push and pull`, async (t) => {
    const [here, there, back] = [local(t, adapter), remote(t), local(t, adapter)];
    await fill(here, documents(30));
    const pushed = await here.replicate.to(there);
    assert.deepEqual([pushed.ok, pushed.docs_read, pushed.docs_written, pushed.doc_write_failures], [true, 30, 30, 0]);
    const pulled = await back.replicate.from(there);
    assert.deepEqual([pulled.ok, pulled.docs_read, pulled.docs_written], [true, 30, 30]);
    await assertSame(here, there);
    await assertSame(here, back);
  });

  test(`${adapter}: edits, deletions and revisions of several generations`, async (t) => {
    const [here, there] = [local(t, adapter), remote(t)];
    await fill(there, documents(10));
    await here.sync(there);
    await here.remove(await here.get('doc00001'));
    await there.remove(await there.get('doc00002'));
    await there.put({ ...(await there.get('doc00003')), _deleted: true, reason: 'a tombstone has a body' });
    for (let at = 0; at < 5; at += 1) await here.put({ ...(await here.get('doc00004')), at });
    const gone = await here.get('doc00005');
    const { rev } = await here.remove(gone);
    await here.put({ _id: 'doc00005', _rev: rev, resurrected: true });
    await here.sync(there);
    await assertSame(here, there);
    assert.equal((await there.info()).doc_count, 7);
    assert.equal((await there.get('doc00005')).resurrected, true);
  });

  test(`${adapter}: conflicts created on both sides`, async (t) => {
    const [here, there] = [local(t, adapter), remote(t)];
    await fill(here, documents(8));
    await here.sync(there);
    for (let at = 0; at < 6; at += 1) {
      await editBoth(here, there, `doc0000${at}`, (side) => ({ side, at: at * 10 }));
    }
    // The longest branch wins, and a branch that is not deleted wins against a deleted one.
    await there.put({ ...(await there.get('doc00001')), longer: true });
    await there.remove(await there.get('doc00002'));
    await here.remove(await here.get('doc00003'));
    await here.sync(there);
    await assertSame(here, there);
    assert.equal((await here.get('doc00001')).longer, true);
    assert.equal((await there.get('doc00002')).side, 'one');
    assert.equal((await there.get('doc00003')).side, 'other');
    for (const id of ['doc00000', 'doc00001', 'doc00004']) {
      const [one, other] = [await here.get(id, { conflicts: true }), await there.get(id, { conflicts: true })];
      assert.equal(other._conflicts.length, 1);
      assert.deepEqual(one, other);
    }

    // The replication also resolves the conflict in the local database.
    const loser = await there.get('doc00004', { conflicts: true });
    await there.remove('doc00004', loser._conflicts[0]);
    await here.sync(there);
    assert.equal((await here.get('doc00004', { conflicts: true }))._conflicts, undefined);
    await assertSame(here, there);
  });

  test(`${adapter}: attachments`, async (t) => {
    const [here, there, back] = [local(t, adapter), remote(t), local(t, adapter)];
    await here.put({
      _id: 'a',
      _attachments: {
        't.txt': { content_type: 'text/plain', data: TEXT },
        'b.bin': { content_type: 'application/octet-stream', data: BINARY },
      },
    });
    await here.replicate.to(there);
    const bytes = async (db, name) => Buffer.from(await db.getAttachment('a', name));
    assert.deepEqual(await bytes(there, 't.txt'), TEXT);
    assert.deepEqual(await bytes(there, 'b.bin'), BINARY);
    const { digest } = (await there.get('a'))._attachments['b.bin'];
    assert.equal(digest, `md5-${createHash('md5').update(BINARY).digest('base64')}`);

    await there.put({ ...(await there.get('a')), edited: 'with stubs' });
    const doc = await there.get('a');
    await there.putAttachment('a', 'folder/third.txt', doc._rev, TEXT, 'text/plain');
    await here.replicate.from(there);
    await back.replicate.from(there);
    for (const db of [here, back]) {
      assert.equal((await db.get('a')).edited, 'with stubs');
      assert.deepEqual(await bytes(db, 'b.bin'), BINARY);
      assert.deepEqual(await bytes(db, 'folder/third.txt'), TEXT);
    }
    await assertSame(here, there);
    await assertSame(back, there);

    await here.removeAttachment('a', 'b.bin', (await here.get('a'))._rev);
    await here.replicate.to(there);
    assert.deepEqual(Object.keys((await there.get('a'))._attachments).sort(), ['folder/third.txt', 't.txt']);
    await assertSame(here, there);
  });

  test(`${adapter}: attachments in conflicting revisions`, async (t) => {
    const [here, there] = [local(t, adapter), remote(t)];
    await here.put({ _id: 'a', _attachments: { 'shared.txt': { content_type: 'text/plain', data: TEXT } } });
    await here.sync(there);
    // Different names, because PouchDB requests an attachment without the revision and would get the winner's twice.
    await here.putAttachment('a', 'here.txt', (await here.get('a'))._rev, Buffer.from('here'), 'text/plain');
    await there.putAttachment('a', 'there.txt', (await there.get('a'))._rev, Buffer.from('there'), 'text/plain');
    await here.sync(there);
    await assertSame(here, there);
    const texts = async (db) => {
      const { _rev, _conflicts } = await db.get('a', { conflicts: true });
      const all = [];
      for (const rev of [_rev, ..._conflicts]) {
        const { _attachments } = await db.get('a', { rev, attachments: true, binary: true });
        for (const [name, { data }] of Object.entries(_attachments)) all.push(`${name}: ${data}`);
      }
      return all.sort();
    };
    assert.deepEqual(await texts(there), ['here.txt: here', `shared.txt: ${TEXT}`, `shared.txt: ${TEXT}`, 'there.txt: there']);
    assert.deepEqual(await texts(here), await texts(there));
  });

  test(`${adapter}: ${MANY} documents; a second replication reads none`, async (t) => {
    const requests = [];
    const [here, there, back] = [local(t, adapter), remote(t, { requests }), local(t, adapter)];
    await fill(here, documents(MANY));
    const options = { batch_size: 500 };
    assert.equal((await here.replicate.to(there, options)).docs_written, MANY);
    assert.equal((await back.replicate.from(there, options)).docs_written, MANY);
    const [sent, got] = [await winners(here), await winners(back)];
    assert.equal(got.length, MANY);
    assert.deepEqual(got, sent);

    for (const again of [() => here.replicate.to(there, options), () => back.replicate.from(there, options)]) {
      requests.length = 0;
      const result = await again();
      assert.deepEqual([result.docs_read, result.docs_written], [0, 0]);
      assert.deepEqual(requests.filter((line) => /_bulk|_revs_diff|_all_docs|doc0/.test(line)), []);
      assert.ok(requests.length <= 6, requests.join('\n'));
    }

    requests.length = 0;
    await there.put({ _id: 'one more' });
    assert.equal((await back.replicate.from(there, options)).docs_read, 1);
    assert.equal(requests.filter((line) => line.includes('_bulk_get')).length, 1, requests.join('\n'));
  });

  test(`${adapter}: by document ids`, async (t) => {
    const [here, there] = [local(t, adapter), remote(t)];
    await fill(there, documents(20));
    const result = await here.replicate.from(there, { doc_ids: ['doc00003', 'doc00017', 'never'] });
    assert.equal(result.docs_written, 2);
    assert.deepEqual(ids((await here.allDocs()).rows), ['doc00003', 'doc00017']);
  });

  test(`${adapter}: by selector`, async (t) => {
    const [here, there] = [local(t, adapter), remote(t)];
    await fill(there, documents(20));
    await here.replicate.from(there, { selector: { at: { $gte: 17 } } });
    assert.deepEqual(ids((await here.allDocs()).rows), ['doc00017', 'doc00018', 'doc00019']);
    const target = remote(t);
    await here.replicate.to(target, { selector: { at: 18 } });
    assert.deepEqual(ids((await target.allDocs()).rows), ['doc00018']);
  });

  test(`${adapter}: by a filter function of the server`, async (t) => {
    const [here, there] = [local(t, adapter), remote(t)];
    await fill(there, documents(20));
    await there.put({
      _id: '_design/filters',
      filters: { below: 'function (doc, req) { return doc.at < Number(req.query.limit_at); }' },
    });
    await here.replicate.from(there, { filter: 'filters/below', query_params: { limit_at: 3 } });
    assert.deepEqual(ids((await here.allDocs()).rows), ['doc00000', 'doc00001', 'doc00002']);
  });

  test(`${adapter}: live, both ways`, async (t) => {
    const [here, there] = [local(t, adapter), remote(t)];
    await fill(here, documents(3, 'here'));
    await fill(there, documents(3, 'there'));
    const sync = here.sync(there, { live: true });
    t.after(() => sync.cancel());
    const count = async (db) => (await db.info()).doc_count;
    const arrived = (total) => async () => (await count(here)) === total && (await count(there)) === total;
    await until(sync, ['change', 'paused'], arrived(6), 'the existing documents');
    await there.put({ _id: 'later, there' });
    await until(sync, ['change', 'paused'], arrived(7), 'a document of the server');
    await here.put({ _id: 'later, here' });
    await until(sync, ['change', 'paused'], arrived(8), 'a document of the local database');
    await there.remove(await there.get('here00000'));
    await until(sync, ['change', 'paused'], arrived(7), 'a deletion');
    const completed = event(sync, 'complete');
    sync.cancel();
    const { push, pull } = await completed;
    assert.deepEqual([push.status, pull.status], ['cancelled', 'cancelled']);
    await assertSame(here, there);
  });
}

test('between two databases of the server', async (t) => {
  const [one, other] = [remote(t), remote(t)];
  await fill(one, documents(50));
  await one.put({ _id: 'a', _attachments: { 'b.bin': { content_type: 'image/png', data: BINARY } } });
  await one.replicate.to(other);
  await assertSame(one, other);
});

test('replicated design documents work', async (t) => {
  const [here, there] = [local(t), remote(t)];
  await fill(here, documents(9));
  await here.put({ _id: '_design/d', views: { at: { map: 'function (doc) { emit(doc.at % 3, doc.at); }', reduce: '_sum' } } });
  await here.replicate.to(there);
  const options = { group: true };
  assert.deepEqual((await there.query('d/at', options)).rows, (await here.query('d/at', options)).rows);
});

for (const direction of ['push', 'pull']) {
  test(`${direction}: continues after the server was killed during the replication`, async (t) => {
    const server = await startServer(t);
    const total = 600;
    const here = local(t);
    const outage = { at: direction === 'push' ? '_bulk_docs' : '_bulk_get', seen: 0 };
    const plain = remote(t, { server: server.url });
    const there = remote(t, {
      url: plain.name,
      fetch: async (address, request) => {
        if (new URL(address).pathname.endsWith(outage.at)) {
          outage.seen += 1;
          if (outage.seen === 3) await server.kill();
        }
        return PouchDB.fetch(address, request);
      },
    });
    await fill(direction === 'push' ? here : plain, documents(total));

    const options = { live: true, retry: true, batch_size: 100, back_off_function: () => 50 };
    const replication = direction === 'push' ? here.replicate.to(there, options) : here.replicate.from(there, options);
    t.after(() => replication.cancel());
    let outages = 0;
    let up = true;
    replication.on('paused', async (error) => {
      if (!error || outages > 0) return;
      outages += 1;
      up = false;
      await server.start();
      up = true;
    });
    const target = direction === 'push' ? plain : here;
    const complete = async () => outages > 0 && up && (await target.info()).doc_count === total;
    await until(replication, ['change', 'paused'], complete, 'all documents, after the outage');
    replication.cancel();
    assert.ok(outage.seen >= 3);
    await assertSame(here, plain);
  });
}
