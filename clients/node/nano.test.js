// nano, the Node client of the CouchDB project. It has no function for COPY, which the suite of couchdb-python tests.
'use strict';

const assert = require('node:assert/strict');
const { once } = require('node:events');
const { text } = require('node:stream/consumers');

const nano = require('nano');
const { SERVER, event, freshName, http, ids, status, suite } = require('./support.js');

// Tests that are expected to fail, with reasons. An entry whose test passes fails the run.
const NOT_YET = {
  'server: updates of databases': '_db_updates is absent',
};

const test = suite(NOT_YET);

const server = nano(SERVER);
const BINARY = Buffer.from(Array.from({ length: 50_000 }, (_, at) => (at * 13 + (at >> 8)) % 256));

async function database() {
  const name = freshName('nano');
  await server.db.create(name);
  return server.use(name);
}

async function withDocuments(count = 6) {
  const db = await database();
  const docs = Array.from({ length: count }, (_, at) => ({ _id: `doc${at}`, at, kind: at % 2 ? 'odd' : 'even' }));
  const rows = await db.bulk({ docs });
  assert.equal(rows.length, count);
  return { db, revs: rows.map((row) => row.rev) };
}

async function withView() {
  const { db } = await withDocuments();
  await db.insert(
    {
      views: {
        kind: { map: 'function (doc) { emit([doc.kind, doc.at], doc.at); }', reduce: '_stats' },
        js: {
          map: 'function (doc) { emit(doc.kind, doc.at); }',
          reduce: 'function (keys, values, rereduce) { return Math.max.apply(null, values); }',
        },
      },
    },
    '_design/d',
  );
  return db;
}

test('databases: create, list, get, destroy', async () => {
  const name = freshName('nano');
  assert.deepEqual(await server.db.create(name), { ok: true });
  await assert.rejects(server.db.create(name), (error) => status(412)(error) && error.error === 'file_exists');
  await assert.rejects(server.db.create('Not_Allowed'), status(400));
  assert.ok((await server.db.list()).includes(name));
  const info = await server.db.get(name);
  assert.equal(info.db_name, name);
  assert.deepEqual(await server.use(name).info(), await server.db.get(name));
  assert.deepEqual(await server.db.destroy(name), { ok: true });
  await assert.rejects(server.db.get(name), status(404));
  await assert.rejects(server.db.destroy(name), status(404));
});

test('databases: names with slashes and plus signs', async () => {
  const name = `${freshName('nano')}/with+all$(of)_it`;
  await server.db.create(name);
  await server.use(name).insert({ a: 1 }, 'x');
  assert.equal((await server.use(name).get('x')).a, 1);
  assert.ok((await server.db.list()).includes(name));
  await server.db.destroy(name);
});

test('server: info, uuids, config', async () => {
  const info = await server.info();
  assert.equal(info.couchdb, 'Welcome');
  assert.match(info.version, /^3\./);
  const { uuids } = await server.uuids(5);
  assert.equal(new Set(uuids).size, 5);
  for (const uuid of uuids) assert.match(uuid, /^[0-9a-f]{32}$/);
  const path = '_node/_local/_config/clients/some_key';
  assert.equal(await server.request({ path, method: 'PUT', body: 'some value' }), '');
  assert.equal(await server.request({ path }), 'some value');
  assert.equal(await server.request({ path, method: 'DELETE' }), 'some value');
  await assert.rejects(server.request({ path }), status(404));
});

test('server: a wrong password', async () => {
  const url = new URL(SERVER);
  url.password = 'wrong';
  await assert.rejects(nano(url.toString()).db.list(), status(401));
});

test('server: sessions with cookies', async () => {
  const url = new URL(SERVER);
  const [name, password] = [url.username, url.password];
  url.username = '';
  url.password = '';
  const anonymous = nano(url.toString());
  assert.equal((await anonymous.session()).userCtx.name, null);
  const login = await anonymous.auth(name, password);
  assert.deepEqual([login.ok, login.name], [true, name]);
  assert.equal((await anonymous.session()).userCtx.name, name);
  assert.ok(Array.isArray(await anonymous.db.list()));
});

test('server: updates of databases', async () => {
  const { last_seq: since } = await server.updates({ since: 'now', feed: 'normal' });
  const db = await database();
  const { results } = await server.updates({ since, feed: 'longpoll', timeout: 5000 });
  assert.ok(results.some((row) => row.db_name === db.config.db && row.type === 'created'));
});

test('documents: insert, get, head, update, destroy', async () => {
  const db = await database();
  const made = await db.insert({ a: 1 }, 'x');
  assert.deepEqual([made.ok, made.id], [true, 'x']);
  assert.deepEqual(await db.get('x'), { _id: 'x', _rev: made.rev, a: 1 });
  assert.equal((await db.head('x')).etag, `"${made.rev}"`);
  const { rev } = await db.insert({ _id: 'x', _rev: made.rev, a: 2 });
  await assert.rejects(db.insert({ a: 3 }, 'x'), (error) => status(409)(error) && error.error === 'conflict');
  assert.equal((await db.get('x', { rev: made.rev })).a, 1);
  assert.deepEqual((await db.get('x', { revs_info: true }))._revs_info.map((row) => row.status), ['available', 'available']);
  assert.equal((await db.destroy('x', rev)).ok, true);
  await assert.rejects(db.head('x'), status(404));
  await assert.rejects(db.get('x'), (error) => error.reason === 'deleted');
  const { id } = await db.insert({ without: 'an id' });
  assert.match(id, /^[0-9a-f]{32}$/);
  assert.equal((await db.insert({ soon: true }, { docName: 'y', batch: 'ok' })).ok, true);
});

test('documents: ids that need escaping', async () => {
  const db = await database();
  for (const id of ['a/b', 'a b+c', 'ü?&=#%', '_design/a', '_local/a']) {
    await db.insert({ of: id }, id);
    assert.equal((await db.get(id)).of, id);
  }
});

test('documents: bulk, list, fetch, fetchRevs', async () => {
  const { db, revs } = await withDocuments();
  const rows = await db.bulk({ docs: [{ _id: 'doc0', _rev: revs[0], _deleted: true }, { _id: 'doc1' }, { _id: 'new' }] });
  assert.deepEqual(rows.map((row) => row.error ?? row.ok), [true, 'conflict', true]);
  const list = await db.list({ include_docs: true, startkey: 'doc3', limit: 2 });
  assert.deepEqual(ids(list.rows), ['doc3', 'doc4']);
  assert.equal(list.rows[0].doc.at, 3);
  assert.deepEqual(ids((await db.list({ keys: ['doc2', 'doc1'] })).rows), ['doc2', 'doc1']);
  const fetched = await db.fetch({ keys: ['doc5', 'never', 'doc2'] });
  assert.deepEqual(fetched.rows.map((row) => row.doc?.at ?? row.error), [5, 'not_found', 2]);
  const found = await db.fetchRevs({ keys: ['doc5'] });
  assert.deepEqual(found.rows[0].value, { rev: revs[5] });
  assert.equal(found.rows[0].doc, undefined);
});

test('documents: lists as streams', async () => {
  const { db } = await withDocuments(500);
  const { rows } = JSON.parse(await text(db.listAsStream({ include_docs: true })));
  assert.equal(rows.length, 500);
  assert.ok(JSON.parse(await text(server.db.listAsStream())).includes(db.config.db));
});

test('views: ranges, keys, groups, reductions', async () => {
  const db = await withView();
  assert.deepEqual(ids((await db.view('d', 'kind', { reduce: false, key: ['odd', 3] })).rows), ['doc3']);
  const keyed = await db.view('d', 'kind', { reduce: false, keys: [['odd', 5], ['even', 0]], include_docs: true });
  assert.deepEqual(keyed.rows.map((row) => row.doc.at), [5, 0]);
  const { rows } = await db.view('d', 'kind', { group_level: 1 });
  assert.deepEqual(rows, [
    { key: ['even'], value: { sum: 6, count: 3, min: 0, max: 4, sumsqr: 20 } },
    { key: ['odd'], value: { sum: 9, count: 3, min: 1, max: 5, sumsqr: 35 } },
  ]);
  const range = { startkey: ['odd'], endkey: ['odd', {}], reduce: false, descending: false };
  assert.equal((await db.view('d', 'kind', range)).rows.length, 3);
  assert.deepEqual((await db.view('d', 'js', { group: true })).rows, [
    { key: 'even', value: 4 },
    { key: 'odd', value: 5 },
  ]);
  assert.deepEqual((await db.view('d', 'js', { keys: ['odd', 'never'], group: true })).rows, [{ key: 'odd', value: 5 }]);
  const queries = [{ key: 'even' }, { reduce: false, limit: 1 }];
  const both = await db.view('d', 'js/queries', { queries });
  assert.deepEqual(both.results.map((result) => result.rows.length), [1, 1]);
  assert.equal(JSON.parse(await text(db.viewAsStream('d', 'kind', { reduce: false }))).rows.length, 6);
  await assert.rejects(db.view('d', 'never'), status(404));
});

test('views: queries in the body of a view request are refused, as by CouchDB 3', async () => {
  const db = await withView();
  await assert.rejects(db.view('d', 'js', { queries: [{ key: 'even' }] }), status(400));
});

test('design functions: show, list, update', async () => {
  const { db } = await withDocuments();
  await db.insert(
    {
      views: { at: { map: 'function (doc) { emit(doc.at, null); }' } },
      shows: { at: "function (doc, req) { return {json: {at: doc.at, asked: req.query.a}}; }" },
      lists: {
        ids: `function (head, req) {
          start({headers: {'Content-Type': 'text/plain'}});
          var row, all = [];
          while (row = getRow()) all.push(row.id);
          return all.join(' ');
        }`,
      },
      updates: {
        set: `function (doc, req) {
          doc.set = JSON.parse(req.body).to;
          return [doc, {headers: {'Content-Type': 'text/plain'}, body: 'was set'}];
        }`,
      },
    },
    '_design/d',
  );
  assert.deepEqual(await db.show('d', 'at', 'doc3', { a: 'b' }), { at: 3, asked: 'b' });
  assert.equal(String(await db.viewWithList('d', 'at', 'ids', { limit: 3 })), 'doc0 doc1 doc2');
  assert.equal(String(await db.updateWithHandler('d', 'set', 'doc2', { to: 7 })), 'was set');
  assert.equal((await db.get('doc2')).set, 7);
});

test('attachments: insert, get, streams, destroy', async () => {
  const db = await database();
  const one = await db.attachment.insert('x', 'b.bin', BINARY, 'application/octet-stream');
  const two = await db.attachment.insert('x', 't.txt', 'Grüße', 'text/plain', { rev: one.rev });
  assert.deepEqual(await db.attachment.get('x', 'b.bin'), BINARY);
  assert.equal(String(await db.attachment.get('x', 't.txt')), 'Grüße');
  const streamed = await db.attachment.getAsStream('x', 'b.bin').toArray();
  assert.deepEqual(Buffer.concat(streamed), BINARY);
  assert.equal((await db.get('x', { attachments: true }))._attachments['b.bin'].data, BINARY.toString('base64'));
  await db.attachment.destroy('x', 'b.bin', { rev: two.rev });
  await assert.rejects(db.attachment.get('x', 'b.bin'), status(404));
  assert.deepEqual(Object.keys((await db.get('x'))._attachments), ['t.txt']);
});

test('attachments: multipart', async () => {
  const db = await database();
  const parts = [
    { name: 'b.bin', data: BINARY, content_type: 'application/octet-stream' },
    { name: 't.txt', data: 'plain text', content_type: 'text/plain' },
    // multipart.get returns text types compressed, so this part has another type.
    { name: 'other', data: 'something else', content_type: 'application/x-other' },
  ];
  const made = await db.multipart.insert({ a: 1 }, parts, 'x');
  assert.equal(made.ok, true);
  assert.deepEqual(await db.attachment.get('x', 'b.bin'), BINARY);
  assert.equal((await db.get('x'))._attachments['t.txt'].length, 10);
  const answer = String(await db.multipart.get('x'));
  assert.match(answer, /^\s*--[0-9a-f]+\r\n/i);
  assert.ok(answer.includes('"a":1') && answer.includes('something else'));
});

test('changes: reader from the start, in batches', async (t) => {
  const { db } = await withDocuments();
  t.after(() => db.changesReader.stop());
  const batches = [];
  const reader = db.changesReader.get({ since: '0', batchSize: 4, timeout: 500 });
  reader.on('batch', (batch) => batches.push(ids(batch)));
  await event(reader, 'end');
  assert.deepEqual(batches.map((batch) => batch.length), [4, 2]);
  assert.equal(new Set(batches.flat()).size, 6);
});

test('changes: reader of new changes', async () => {
  const { db } = await withDocuments();
  const { last_seq: since } = await db.changes({ since: 'now' });
  const reader = db.changesReader.start({ since, includeDocs: true });
  const changed = event(reader, 'change');
  await db.insert({ later: true }, 'later');
  const change = await changed;
  assert.deepEqual([change.id, change.doc.later], ['later', true]);
  const ended = event(reader, 'end');
  // Stopping the reader makes nano emit an error.
  reader.removeAllListeners('error').on('error', () => {});
  db.changesReader.stop();
  await ended;
});

test('changes: reader with a selector', async (t) => {
  const { db } = await withDocuments();
  t.after(() => db.changesReader.stop());
  const seen = [];
  const reader = db.changesReader.get({ since: '0', timeout: 500, selector: { kind: 'odd' } });
  reader.on('change', (change) => seen.push(change.id));
  await event(reader, 'end');
  assert.deepEqual(seen.sort(), ['doc1', 'doc3', 'doc5']);
});

test('changes: spool', async () => {
  const { db } = await withDocuments(250);
  const seen = [];
  const reader = db.changesReader.spool({ since: '0', batchSize: 100 });
  reader.on('batch', (batch) => seen.push(...ids(batch)));
  const [last] = await once(reader, 'end');
  assert.equal(new Set(seen).size, 250);
  assert.equal(last, (await db.changes()).last_seq);
});

test('find and createIndex', async () => {
  const { db } = await withDocuments();
  assert.equal((await db.createIndex({ index: { fields: ['kind', 'at'] }, name: 'kinds' })).result, 'created');
  const query = { selector: { kind: 'odd', at: { $gt: 1 } }, fields: ['_id'], sort: ['kind', 'at'] };
  const found = await db.find(query);
  assert.deepEqual(found.docs, [{ _id: 'doc3' }, { _id: 'doc5' }]);
  assert.equal(found.warning, undefined);
  assert.equal(JSON.parse(await text(db.findAsStream(query))).docs.length, 2);
  await assert.rejects(db.find({ selector: { at: { $nonsense: 1 } } }), status(400));
});

test('partitioned databases', async () => {
  const name = freshName('nano');
  await server.db.create(name, { partitioned: true });
  const db = server.use(name);
  await db.bulk({ docs: ['a:1', 'a:2', 'b:1'].map((_id) => ({ _id, n: Number(_id.slice(2)) })) });
  await assert.rejects(db.insert({}, 'without'), status(400));
  assert.equal((await db.partitionInfo('a')).doc_count, 2);
  assert.deepEqual(ids((await db.partitionedList('a')).rows), ['a:1', 'a:2']);
  await db.insert({ views: { n: { map: 'function (doc) { emit(doc.n); }' } } }, '_design/d');
  assert.deepEqual(ids((await db.partitionedView('b', 'd', 'n')).rows), ['b:1']);
});

test('partitioned databases: find', async () => {
  const name = freshName('nano');
  await server.db.create(name, { partitioned: true });
  const db = server.use(name);
  await db.bulk({ docs: ['a:1', 'a:2', 'b:1'].map((_id) => ({ _id, n: Number(_id.slice(2)) })) });
  assert.deepEqual(ids((await db.partitionedFind('a', { selector: { n: 1 } })).docs), ['a:1']);
});

test('replication by the server', async () => {
  const { db } = await withDocuments();
  const target = await database();
  const address = (one) => `${SERVER}/${one.config.db}`;
  assert.equal((await server.db.replicate(address(db), address(target))).ok, true);
  assert.equal((await target.info()).doc_count, 6);
});

test('compact', async () => {
  const { db, revs } = await withDocuments();
  await db.insert({ _id: 'doc0', _rev: revs[0], changed: true });
  assert.deepEqual(await server.db.compact(db.config.db), { ok: true });
  while ((await db.info()).compact_running);
  await assert.rejects(http('GET', `${SERVER}/${db.config.db}/doc0?rev=${revs[0]}`), /404/);
});
