// PouchDB's adapter `http`: every function that sends requests to the server.
'use strict';

const assert = require('node:assert/strict');
const { createHash } = require('node:crypto');
const { event, http, ids, local, remote, status, suite, until } = require('./support.js');

// Tests that are expected to fail, with reasons. An entry whose test passes fails the run.
const NOT_YET = {};

const test = suite(NOT_YET);

const TEXT = Buffer.from('Straße, 東京, ünïcödé\r\nsecond line');
const BINARY = Buffer.from(Array.from({ length: 70_000 }, (_, at) => (at * 31 + (at >> 8)) % 256));
const md5 = (bytes) => `md5-${createHash('md5').update(bytes).digest('base64')}`;

async function withDocuments(t, count = 10) {
  const db = remote(t);
  const docs = Array.from({ length: count }, (_, at) => ({ _id: `doc${at}`, at, even: at % 2 === 0 }));
  const results = await db.bulkDocs(docs);
  assert.ok(results.every((row) => row.ok));
  return { db, revs: results.map((row) => row.rev) };
}

// A document `a` with the live leaves 3-c, 3-b and 2-d, and the deleted leaf 2-e.
async function withConflicts(t) {
  const db = remote(t);
  const revision = (start, hashes, rest) => ({
    _id: 'a',
    _rev: `${start}-${hashes[0]}`,
    _revisions: { start, ids: hashes },
    ...rest,
  });
  await db.bulkDocs(
    [
      revision(3, ['b', 'x', 'r'], { value: 'b' }),
      revision(3, ['c', 'x', 'r'], { value: 'c' }),
      revision(2, ['d', 'r'], { value: 'd' }),
      revision(2, ['e', 'r'], { _deleted: true }),
    ],
    { new_edits: false },
  );
  return db;
}

test('a database is created, described and destroyed', async (t) => {
  const db = remote(t);
  const info = await db.info();
  assert.equal(info.adapter, 'http');
  assert.equal(info.doc_count, 0);
  assert.equal(info.doc_del_count, 0);
  await db.put({ _id: 'a' });
  await db.put({ _id: 'b' });
  await db.remove(await db.get('b'));
  const later = await db.info();
  assert.deepEqual([later.doc_count, later.doc_del_count], [1, 1]);
  assert.notEqual(later.update_seq, info.update_seq);
  assert.equal((await db.destroy()).ok, true);
  await assert.rejects(http('GET', db.name), /404/);
});

test('skip_setup: a missing database is not created', async (t) => {
  const db = remote(t, { skip_setup: true });
  const info = await db.info();
  assert.equal(info.error, 'not_found');
  await assert.rejects(db.put({ _id: 'a' }), status(404));
});

test('documents are put, read, updated and removed', async (t) => {
  const db = remote(t);
  const body = { text: 'é\u2028"\\', number: 1.5, big: 12345678901, list: [null, true, { deep: [] }], '': 'empty name' };
  const first = await db.put({ _id: 'a', ...body });
  assert.match(first.rev, /^1-[0-9a-f]{32}$/);
  assert.deepEqual(await db.get('a'), { _id: 'a', _rev: first.rev, ...body });

  const second = await db.put({ _id: 'a', _rev: first.rev, changed: true });
  assert.match(second.rev, /^2-/);
  await assert.rejects(db.put({ _id: 'a', _rev: first.rev }), status(409));
  await assert.rejects(db.put({ _id: 'a' }), status(409));

  const third = await db.remove('a', second.rev);
  await assert.rejects(db.get('a'), (error) => status(404)(error) && error.reason === 'deleted');
  await assert.rejects(db.get('never'), (error) => status(404)(error) && error.reason === 'missing');
  assert.deepEqual(await db.get('a', { rev: third.rev }), { _id: 'a', _rev: third.rev, _deleted: true });
  assert.match((await db.put({ _id: 'a', again: 1 })).rev, /^4-/);
});

test('post: the id is generated', async (t) => {
  const db = remote(t);
  const { id, rev } = await db.post({ value: 1 });
  assert.deepEqual(await db.get(id), { _id: id, _rev: rev, value: 1 });
});

test('ids of all kinds', async (t) => {
  const db = remote(t);
  const all = ['with/slash', 'mit Leer zeichen', '東京', 'a+b&c=d?e#f%25', '_design/views', '"quoted"', '😀', 'back\\slash'];
  for (const id of all) await db.put({ _id: id });
  for (const id of all) assert.equal((await db.get(id))._id, id);
  assert.deepEqual(ids((await db.allDocs()).rows).sort(), [...all].sort());
  await assert.rejects(db.put({ _id: '_reserved' }), status(400));
});

test('force: an update of an old revision creates a conflict', async (t) => {
  const db = remote(t);
  const { rev } = await db.put({ _id: 'a', value: 1 });
  await db.put({ _id: 'a', _rev: rev, value: 2 });
  const forced = await db.put({ _id: 'a', _rev: rev, value: 3 }, { force: true });
  const doc = await db.get('a', { conflicts: true });
  assert.equal([doc._rev, ...doc._conflicts].filter((leaf) => leaf === forced.rev).length, 1);
});

test('bulkDocs: one result for each document', async (t) => {
  const { db, revs } = await withDocuments(t, 3);
  const rows = await db.bulkDocs([
    { _id: 'doc0', _rev: revs[0], changed: true },
    { _id: 'doc1', lost: true },
    { _id: 'doc2', _rev: revs[2], _deleted: true },
    { _id: 'new' },
    { made: true },
  ]);
  assert.deepEqual(rows.map((row) => row.ok ?? row.status), [true, 409, true, true, true]);
  assert.equal(rows[1].name, 'conflict');
  assert.equal(rows[1].id, 'doc1');
  assert.equal((await db.info()).doc_count, 4);
});

test('bulkDocs: 1,000 documents at once', async (t) => {
  const { db } = await withDocuments(t, 1000);
  const all = await db.allDocs({ include_docs: true });
  assert.equal(all.total_rows, 1000);
  assert.equal(all.rows.reduce((sum, row) => sum + row.doc.at, 0), 499_500);
});

test('allDocs: ranges and paging', async (t) => {
  const { db } = await withDocuments(t);
  const cases = [
    [{}, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 0],
    [{ descending: true, limit: 3 }, [9, 8, 7], 0],
    [{ limit: 2, skip: 3 }, [3, 4], 3],
    [{ limit: 0 }, [], 0],
    [{ startkey: 'doc4', endkey: 'doc6' }, [4, 5, 6], 4],
    [{ start_key: 'doc4', end_key: 'doc6', inclusive_end: false }, [4, 5], 4],
    [{ startkey: 'doc6', endkey: 'doc4', descending: true }, [6, 5, 4], 3],
    [{ startkey: 'doc8\ufff0' }, [9], 9],
    [{ key: 'doc5' }, [5], 5],
    [{ startkey: 'z' }, [], 10],
  ];
  for (const [options, expected, offset] of cases) {
    const result = await db.allDocs(options);
    assert.deepEqual(ids(result.rows), expected.map((at) => `doc${at}`), JSON.stringify(options));
    assert.equal(result.total_rows, 10);
    assert.equal(result.offset, offset, JSON.stringify(options));
  }
});

test('allDocs: keys', async (t) => {
  const { db, revs } = await withDocuments(t, 4);
  const { rev } = await db.remove('doc1', revs[1]);
  const { rows } = await db.allDocs({ keys: ['doc3', 'never', 'doc1', 'doc3'], include_docs: true });
  assert.deepEqual(rows.map((row) => row.key), ['doc3', 'never', 'doc1', 'doc3']);
  assert.equal(rows[0].doc.at, 3);
  assert.deepEqual(rows[1], { key: 'never', error: 'not_found' });
  assert.deepEqual(rows[2], { id: 'doc1', key: 'doc1', value: { rev, deleted: true }, doc: null });
  assert.deepEqual(rows[3], rows[0]);
  assert.deepEqual((await db.allDocs({ keys: [] })).rows, []);
});

test('allDocs: conflicts and update_seq', async (t) => {
  const db = await withConflicts(t);
  const result = await db.allDocs({ include_docs: true, conflicts: true, update_seq: true });
  assert.equal(result.rows[0].value.rev, '3-c');
  assert.deepEqual(result.rows[0].doc._conflicts, ['3-b', '2-d']);
  assert.ok(result.update_seq);
});

test('allDocs: attachments as Buffers', async (t) => {
  const db = remote(t);
  await db.put({ _id: 'a', _attachments: { 'b.bin': { content_type: 'application/octet-stream', data: BINARY } } });
  const { rows } = await db.allDocs({ include_docs: true, attachments: true, binary: true });
  assert.deepEqual(Buffer.from(rows[0].doc._attachments['b.bin'].data), BINARY);
  const plain = await db.allDocs({ include_docs: true, attachments: true });
  assert.equal(plain.rows[0].doc._attachments['b.bin'].data, BINARY.toString('base64'));
});

test('conflicts: winner, _conflicts, _revisions, _revs_info', async (t) => {
  const db = await withConflicts(t);
  const doc = await db.get('a', { conflicts: true, revs: true, revs_info: true });
  assert.equal(doc._rev, '3-c');
  assert.equal(doc.value, 'c');
  assert.deepEqual(doc._conflicts, ['3-b', '2-d']);
  assert.deepEqual(doc._revisions, { start: 3, ids: ['c', 'x', 'r'] });
  assert.deepEqual(doc._revs_info, [
    { rev: '3-c', status: 'available' },
    { rev: '2-x', status: 'missing' },
    { rev: '1-r', status: 'missing' },
  ]);
});

test('conflicts: open_revs', async (t) => {
  const db = await withConflicts(t);
  const all = await db.get('a', { open_revs: 'all' });
  assert.deepEqual(all.map((row) => row.ok._rev).sort(), ['2-d', '2-e', '3-b', '3-c']);
  assert.equal(all.find((row) => row.ok._rev === '2-e').ok._deleted, true);
  const some = await db.get('a', { open_revs: ['3-b', '9-z', '2-x'], revs: true });
  const found = some.find((row) => row.ok?._rev === '3-b');
  assert.deepEqual(found.ok._revisions, { start: 3, ids: ['b', 'x', 'r'] });
  assert.deepEqual(some.filter((row) => row.missing).map((row) => row.missing).sort(), ['2-x', '9-z']);
  const latest = await db.get('a', { open_revs: ['2-x'], latest: true });
  assert.deepEqual(latest.map((row) => row.ok._rev).sort(), ['3-b', '3-c']);
});

test('conflicts: resolved by removing the losers', async (t) => {
  const db = await withConflicts(t);
  await db.remove('a', '3-b');
  await db.remove('a', '2-d');
  assert.equal((await db.get('a', { conflicts: true }))._conflicts, undefined);
  await db.remove('a', '3-c');
  await assert.rejects(db.get('a'), status(404));
});

test('revsDiff', async (t) => {
  const db = await withConflicts(t);
  assert.deepEqual(await db.revsDiff({ a: ['3-c', '2-x', '1-r', '2-e'] }), {});
  const diff = await db.revsDiff({ a: ['3-c', '4-f', '3-g'], new: ['1-a'] });
  assert.deepEqual([...diff.a.missing].sort(), ['3-g', '4-f']);
  assert.deepEqual(diff.new, { missing: ['1-a'] });
});

test('bulkGet', async (t) => {
  const db = await withConflicts(t);
  const { results } = await db.bulkGet({
    docs: [{ id: 'a' }, { id: 'a', rev: '3-b' }, { id: 'a', rev: '7-q' }, { id: 'never' }],
    revs: true,
  });
  assert.deepEqual(ids(results), ['a', 'a', 'a', 'never']);
  assert.deepEqual(results[0].docs.map((row) => row.ok._rev).sort(), ['2-d', '2-e', '3-b', '3-c']);
  assert.deepEqual(results[1].docs[0].ok._revisions, { start: 3, ids: ['b', 'x', 'r'] });
  assert.equal(results[2].docs[0].error.error, 'not_found');
  assert.equal(results[3].docs[0].error.error, 'not_found');
});

test('bulkGet: attachments as Buffers', async (t) => {
  const db = remote(t);
  const { rev } = await db.put({ _id: 'a', _attachments: { 't.txt': { content_type: 'text/plain', data: TEXT } } });
  const { results } = await db.bulkGet({ docs: [{ id: 'a', rev }], attachments: true, binary: true });
  assert.deepEqual(Buffer.from(results[0].docs[0].ok._attachments['t.txt'].data), TEXT);
});

test('changes: options', async (t) => {
  const { db, revs } = await withDocuments(t);
  await db.remove('doc3', revs[3]);
  const all = await db.changes();
  assert.deepEqual(ids(all.results).sort(), Array.from({ length: 10 }, (_, at) => `doc${at}`));
  assert.equal(all.results.at(-1).id, 'doc3');
  assert.equal(all.results.at(-1).deleted, true);
  assert.equal(all.last_seq, all.results.at(-1).seq);

  const few = await db.changes({ limit: 4 });
  assert.equal(few.results.length, 4);
  const rest = await db.changes({ since: few.last_seq });
  assert.deepEqual([...ids(few.results), ...ids(rest.results)], ids(all.results));
  assert.deepEqual((await db.changes({ since: 'now' })).results, []);
  assert.deepEqual((await db.changes({ since: all.last_seq })).results, []);

  const back = await db.changes({ descending: true, limit: 2 });
  assert.deepEqual(ids(back.results), ids(all.results).reverse().slice(0, 2));

  const docs = await db.changes({ include_docs: true, limit: 2 });
  for (const row of docs.results) assert.equal(row.doc._rev, row.changes[0].rev);

  // PouchDB fetches the feed in pages of this size.
  assert.deepEqual(ids((await db.changes({ batch_size: 3 })).results), ids(all.results));
});

test('changes: style all_docs and conflicts', async (t) => {
  const db = await withConflicts(t);
  const { results } = await db.changes({ style: 'all_docs', include_docs: true, conflicts: true });
  assert.equal(results.length, 1);
  assert.deepEqual(results[0].changes.map((row) => row.rev).sort(), ['2-d', '2-e', '3-b', '3-c']);
  assert.deepEqual(results[0].doc._conflicts, ['3-b', '2-d']);
  assert.deepEqual((await db.changes()).results[0].changes, [{ rev: '3-c' }]);
});

test('changes: attachments', async (t) => {
  const db = remote(t);
  await db.put({ _id: 'a', _attachments: { 't.txt': { content_type: 'text/plain', data: TEXT } } });
  const { results } = await db.changes({ include_docs: true, attachments: true, binary: true });
  assert.deepEqual(Buffer.from(results[0].doc._attachments['t.txt'].data), TEXT);
  const stub = (await db.changes({ include_docs: true })).results[0].doc._attachments['t.txt'];
  assert.deepEqual([stub.stub, stub.length], [true, TEXT.length]);
});

test('changes: doc_ids', async (t) => {
  const { db } = await withDocuments(t);
  const { results } = await db.changes({ doc_ids: ['doc2', 'doc7', 'never'] });
  assert.deepEqual(ids(results).sort(), ['doc2', 'doc7']);
});

test('changes: selector', async (t) => {
  const { db } = await withDocuments(t);
  const { results } = await db.changes({ selector: { even: true, at: { $gt: 3 } } });
  assert.deepEqual(ids(results).sort(), ['doc4', 'doc6', 'doc8']);
});

test('changes: filter function of a design document', async (t) => {
  const { db } = await withDocuments(t);
  await db.put({
    _id: '_design/filters',
    filters: { above: 'function (doc, req) { return doc.at > Number(req.query.least); }' },
  });
  const { results } = await db.changes({ filter: 'filters/above', query_params: { least: 7 } });
  assert.deepEqual(ids(results).sort(), ['doc8', 'doc9']);
});

test('changes: view as a filter', async (t) => {
  const { db } = await withDocuments(t);
  await db.put({ _id: '_design/views', views: { odd: { map: 'function (doc) { if (doc.even === false) emit(doc.at); }' } } });
  const { results } = await db.changes({ view: 'views/odd' });
  assert.deepEqual(ids(results).sort(), ['doc1', 'doc3', 'doc5', 'doc7', 'doc9']);
});

test('changes: filter function of the client', async (t) => {
  const { db } = await withDocuments(t);
  const { results } = await db.changes({ filter: (doc) => doc.at === 4 });
  assert.deepEqual(ids(results), ['doc4']);
});

test('changes: live until cancelled', async (t) => {
  const { db } = await withDocuments(t, 2);
  const seen = [];
  const feed = db.changes({ live: true, since: 0, include_docs: true });
  t.after(() => feed.cancel());
  feed.on('change', (change) => seen.push(change));
  await until(feed, ['change'], () => seen.length === 2, 'the existing changes');
  const { rev } = await db.put({ _id: 'later', value: 1 });
  await until(feed, ['change'], () => seen.at(-1).id === 'later', 'a change after the feed is idle');
  assert.equal(seen.at(-1).doc.value, 1);
  await db.remove('later', rev);
  await until(feed, ['change'], () => seen.at(-1).deleted === true, 'a deletion');
  const completed = event(feed, 'complete');
  feed.cancel();
  assert.equal((await completed).status, 'cancelled');
  await db.put({ _id: 'after' });
  assert.equal(seen.at(-1).id, 'later');
});

test('changes: live from now with doc_ids', async (t) => {
  const { db } = await withDocuments(t, 2);
  const feed = db.changes({ live: true, since: (await db.info()).update_seq, doc_ids: ['wanted'] });
  t.after(() => feed.cancel());
  const change = event(feed, 'change');
  await db.put({ _id: 'other' });
  await db.put({ _id: 'wanted' });
  assert.equal((await change).id, 'wanted');
});

const SALES = [
  { _id: 's1', month: '2026-01', shop: 'a', amount: 3 },
  { _id: 's2', month: '2026-01', shop: 'b', amount: 4 },
  { _id: 's3', month: '2026-02', shop: 'a', amount: 5 },
  { _id: 's4', month: '2026-03', shop: 'b', amount: 6 },
];

async function withView(t) {
  const db = remote(t);
  await db.bulkDocs(SALES);
  await db.put({
    _id: '_design/sales',
    views: {
      month: { map: 'function (doc) { if (doc.month) emit([doc.month, doc.shop], doc.amount); }', reduce: '_sum' },
      link: { map: "function (doc) { if (doc.month) emit(doc.month, {_id: 's1'}); }" },
    },
  });
  return db;
}

test('query: persisted views', async (t) => {
  const db = await withView(t);
  const rows = async (options) => (await db.query('sales/month', options)).rows;
  assert.deepEqual(await rows(), [{ key: null, value: 18 }]);
  assert.deepEqual(await rows({ group_level: 1 }), [
    { key: ['2026-01'], value: 7 },
    { key: ['2026-02'], value: 5 },
    { key: ['2026-03'], value: 6 },
  ]);
  assert.equal((await rows({ group: true })).length, 4);
  assert.deepEqual(await rows({ startkey: ['2026-02'], endkey: ['2026-03', {}] }), [{ key: null, value: 11 }]);

  const unreduced = await db.query('sales/month', { reduce: false });
  assert.deepEqual([unreduced.total_rows, unreduced.offset], [4, 0]);
  assert.deepEqual(ids(await rows({ reduce: false, descending: true, limit: 2 })), ['s4', 's3']);
  assert.deepEqual(ids(await rows({ reduce: false, skip: 1, limit: 2 })), ['s2', 's3']);
  assert.deepEqual(ids(await rows({ reduce: false, key: ['2026-02', 'a'] })), ['s3']);
  assert.deepEqual(
    ids(await rows({ reduce: false, keys: [['2026-03', 'b'], ['never'], ['2026-01', 'a']] })),
    ['s4', 's1'],
  );
  assert.deepEqual(
    ids(await rows({ reduce: false, startkey: ['2026-01', 'a'], endkey: ['2026-01', 'b'], inclusive_end: false })),
    ['s1'],
  );
  const [withDoc] = await rows({ reduce: false, include_docs: true, limit: 1 });
  assert.equal(withDoc.doc.amount, 3);
  const linked = (await db.query('sales/link', { include_docs: true })).rows;
  assert.ok(linked.every((row) => row.doc._id === 's1'));
  await assert.rejects(db.query('sales/never'), status(404));
});

test('query: a view is updated after changes of documents', async (t) => {
  const db = await withView(t);
  const sum = async (options) => (await db.query('sales/month', options)).rows[0].value;
  assert.equal(await sum(), 18);
  const doc = await db.get('s4');
  await db.put({ ...doc, amount: 100 });
  assert.equal(await sum(), 112);
  await db.remove(await db.get('s1'));
  assert.equal(await sum({ update: 'true' }), 109);
  assert.equal(await sum({ stale: 'ok' }), 109);
});

test('query: temporary views of the server', async (t) => {
  const db = remote(t);
  await db.bulkDocs(SALES);
  const map = 'function (doc) { emit(doc.shop, doc.amount); }';
  assert.equal((await db.query({ map }, { key: 'a' })).rows.length, 2);
  assert.deepEqual((await db.query({ map, reduce: '_sum' }, { group: true })).rows, [
    { key: 'a', value: 8 },
    { key: 'b', value: 10 },
  ]);
});

test('query: the same temporary view on the client', async (t) => {
  const db = remote(t);
  const copy = local(t);
  await db.bulkDocs([...SALES, { _id: 'mixed', shop: ['x', { y: null }], amount: -1 }, { _id: 'none' }]);
  await db.replicate.to(copy);
  const view = { map: 'function (doc) { emit(doc.shop, doc.amount); }' };
  assert.deepEqual((await db.query(view)).rows, (await copy.query(view)).rows);
});

test('viewCleanup', async (t) => {
  const db = await withView(t);
  await db.query('sales/month');
  await db.remove(await db.get('_design/sales'));
  assert.equal((await db.viewCleanup()).ok, true);
});

test('local documents', async (t) => {
  const db = remote(t);
  const { rev } = await db.put({ _id: '_local/a', value: 1 });
  assert.equal(rev, '0-1');
  assert.deepEqual(await db.get('_local/a'), { _id: '_local/a', _rev: '0-1', value: 1 });
  assert.equal((await db.put({ _id: '_local/a', _rev: '0-1', value: 2 })).rev, '0-2');
  assert.equal((await db.info()).doc_count, 0);
  assert.deepEqual((await db.allDocs()).rows, []);
  await db.remove(await db.get('_local/a'));
  await assert.rejects(db.get('_local/a'), status(404));
});

test('attachments: put, get, remove', async (t) => {
  const db = remote(t);
  const one = await db.putAttachment('a', 't.txt', TEXT, 'text/plain');
  assert.match(one.rev, /^1-/);
  const two = await db.putAttachment('a', 'folder/ü b.bin', one.rev, BINARY, 'application/octet-stream');
  const text = await db.getAttachment('a', 't.txt');
  assert.deepEqual(Buffer.from(text), TEXT);
  assert.equal(text.type, 'text/plain');
  assert.deepEqual(Buffer.from(await db.getAttachment('a', 'folder/ü b.bin')), BINARY);

  const doc = await db.get('a');
  // CouchDB computes the digest of a text from its compressed form.
  assert.match(doc._attachments['t.txt'].digest, /^md5-[\w+/]{22}==$/);
  assert.deepEqual(doc._attachments, {
    't.txt': {
      content_type: 'text/plain',
      revpos: 1,
      digest: doc._attachments['t.txt'].digest,
      length: TEXT.length,
      stub: true,
    },
    'folder/ü b.bin': {
      content_type: 'application/octet-stream',
      revpos: 2,
      digest: md5(BINARY),
      length: BINARY.length,
      stub: true,
    },
  });

  await assert.rejects(db.putAttachment('a', 't.txt', one.rev, TEXT, 'text/plain'), status(409));
  const three = await db.removeAttachment('a', 't.txt', two.rev);
  await assert.rejects(db.getAttachment('a', 't.txt'), status(404));
  assert.deepEqual(Buffer.from(await db.getAttachment('a', 't.txt', { rev: two.rev })), TEXT);
  assert.deepEqual(Object.keys((await db.get('a'))._attachments), ['folder/ü b.bin']);
  await db.removeAttachment('a', 'folder/ü b.bin', three.rev);
  assert.equal((await db.get('a'))._attachments, undefined);
});

test('attachments: several inline, kept by stubs', async (t) => {
  const db = remote(t);
  const { rev } = await db.put({
    _id: 'a',
    _attachments: {
      't.txt': { content_type: 'text/plain', data: TEXT.toString('base64') },
      'b.bin': { content_type: 'application/octet-stream', data: BINARY },
      empty: { content_type: 'text/plain', data: '' },
    },
  });
  const doc = await db.get('a');
  assert.ok(Object.values(doc._attachments).every((stub) => stub.stub && stub.revpos === 1));
  await db.put({ ...doc, value: 1 });
  const full = await db.get('a', { attachments: true, binary: true });
  assert.deepEqual(Buffer.from(full._attachments['t.txt'].data), TEXT);
  assert.deepEqual(Buffer.from(full._attachments['b.bin'].data), BINARY);
  assert.equal(full._attachments.empty.data.length, 0);
  assert.deepEqual(full._attachments['b.bin'].digest, md5(BINARY));
  const old = await db.get('a', { rev, attachments: true });
  assert.equal(old._attachments['t.txt'].data, TEXT.toString('base64'));

  const changed = await db.get('a');
  delete changed._attachments['t.txt'];
  await db.put(changed);
  assert.deepEqual(Object.keys((await db.get('a'))._attachments).sort(), ['b.bin', 'empty']);
});

test('attachments: a stub of a missing attachment and invalid base64 are refused', async (t) => {
  const db = remote(t);
  await assert.rejects(
    db.put({ _id: 'a', _attachments: { 'x.txt': { content_type: 'text/plain', stub: true, digest: md5(TEXT), length: 1, revpos: 1 } } }),
    status(412),
  );
  await assert.rejects(http('PUT', `${db.name}/b`, { _attachments: { x: { content_type: 'text/plain', data: '%%%' } } }), /400/);
});

test('attachments: the same edit creates the same revision in two databases', async (t) => {
  const doc = { _id: 'a', value: 1, _attachments: { 'b.bin': { content_type: 'image/png', data: BINARY } } };
  const db = remote(t);
  const other = remote(t);
  assert.equal((await db.put(doc)).rev, (await other.put(doc)).rev);
});

test('compact', async (t) => {
  const db = remote(t);
  const { rev } = await db.put({ _id: 'a', value: 1 });
  await db.put({ _id: 'a', _rev: rev, value: 2 });
  assert.equal((await db.get('a', { rev })).value, 1);
  assert.deepEqual(await db.compact(), { ok: true });
  assert.equal((await db.get('a')).value, 2);
  await assert.rejects(db.get('a', { rev }), status(404));
});

const PEOPLE = [
  { _id: 'p1', name: 'Ada', age: 36, tags: ['math'] },
  { _id: 'p2', name: 'Grace', age: 85, tags: ['navy', 'cobol'] },
  { _id: 'p3', name: 'Linus', age: 54, tags: ['kernel'] },
  { _id: 'p4', name: 'Margaret', age: 87, tags: ['moon'] },
  { _id: 'p5', name: 'Åsa', tags: [] },
];

async function withPeople(t) {
  const db = remote(t);
  await db.bulkDocs(PEOPLE);
  return db;
}

test('find: selectors', async (t) => {
  const db = await withPeople(t);
  const cases = [
    [{ age: { $gt: 50 } }, ['p2', 'p3', 'p4']],
    [{ name: 'Ada' }, ['p1']],
    [{ age: { $exists: false } }, ['p5']],
    [{ $or: [{ name: 'Ada' }, { age: 54 }] }, ['p1', 'p3']],
    [{ tags: { $elemMatch: { $eq: 'cobol' } } }, ['p2']],
    [{ tags: { $all: ['navy', 'cobol'] } }, ['p2']],
    [{ tags: { $size: 0 } }, ['p5']],
    [{ name: { $regex: '^.{5}$' } }, ['p2', 'p3']],
    [{ age: { $in: [36, 87] } }, ['p1', 'p4']],
    [{ $not: { name: 'Ada' } }, ['p2', 'p3', 'p4', 'p5']],
    // The negation of a comparison is the opposite comparison, which a missing field does not match either.
    [{ $not: { age: { $gte: 50 } } }, ['p1']],
    [{ _id: { $gt: 'p2', $lte: 'p4' } }, ['p3', 'p4']],
  ];
  for (const [selector, expected] of cases) {
    const { docs } = await db.find({ selector });
    assert.deepEqual(ids(docs).sort(), expected, JSON.stringify(selector));
  }
});

test('find: index, sort, fields, limit, skip', async (t) => {
  const db = await withPeople(t);
  const made = await db.createIndex({ index: { fields: ['age'], name: 'by-age', ddoc: 'people' } });
  assert.deepEqual([made.result, made.id, made.name], ['created', '_design/people', 'by-age']);
  assert.equal((await db.createIndex({ index: { fields: ['age'], name: 'by-age', ddoc: 'people' } })).result, 'exists');
  const query = { selector: { age: { $gt: 0 } }, sort: [{ age: 'desc' }], fields: ['name'], limit: 2, skip: 1 };
  assert.deepEqual((await db.find(query)).docs, [{ name: 'Grace' }, { name: 'Linus' }]);
  const { indexes } = await db.getIndexes();
  assert.deepEqual(indexes.map((index) => index.name).sort(), ['_all_docs', 'by-age']);
  const explained = await db.explain(query);
  assert.equal(explained.index.name, 'by-age');
  const [, index] = indexes.sort((a, b) => (a.name < b.name ? -1 : 1));
  assert.deepEqual(await db.deleteIndex(index), { ok: true });
  assert.equal((await db.getIndexes()).indexes.length, 1);
});

test('find: bookmarks', async (t) => {
  const db = await withPeople(t);
  const seen = [];
  let bookmark;
  for (;;) {
    const page = await db.find({ selector: {}, limit: 2, ...(bookmark && { bookmark }) });
    if (page.docs.length === 0) break;
    seen.push(...ids(page.docs));
    bookmark = page.bookmark;
  }
  assert.deepEqual(seen, ['p1', 'p2', 'p3', 'p4', 'p5']);
});

test('validation functions of design documents', async (t) => {
  const db = remote(t);
  await db.put({
    _id: '_design/checks',
    validate_doc_update: "function (doc) { if (!doc._deleted && !doc.type) throw {forbidden: 'needs a type'}; }",
  });
  await assert.rejects(db.put({ _id: 'a' }), (error) => status(403)(error) && error.reason === 'needs a type');
  await db.put({ _id: 'a', type: 'x' });
  const rows = await db.bulkDocs([{ _id: 'b' }, { _id: 'c', type: 'y' }]);
  assert.equal(rows[0].name, 'forbidden');
  assert.equal(rows[1].ok, true);
});
