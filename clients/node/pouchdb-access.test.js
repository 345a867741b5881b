// Devices with PouchDB that replicate their user's part of a database with per-document access.
'use strict';

const assert = require('node:assert/strict');
const { SERVER, databaseUrl, freshName, http, ids, local, remote, status, suite, until } = require('./support.js');

// Tests that are expected to fail, with reasons. An entry whose test passes fails the run.
const NOT_YET = {};

const test = suite(NOT_YET);

const account = (name) => `${SERVER}/_users/org.couchdb.user:${name}`;

async function setRoles(name, roles) {
  const user = await http('GET', account(name));
  await http('PUT', account(name), { ...user, roles });
}

// Creates a database with per-document access and a device for each user. Roles of users are given by name.
async function world(t, roles, adapter = 'memory') {
  await http('PUT', `${SERVER}/_users`).catch(() => {});
  const url = databaseUrl();
  await http('PUT', `${url}?access=true`);
  await http('PUT', `${url}/_security`, { members: { roles: ['_users'] } });
  const devices = {};
  for (const [user, list] of Object.entries(roles)) {
    const name = freshName(user);
    await http('PUT', account(name), { name, password: 'pw', roles: list, type: 'user' });
    devices[user] = device(t, url, name, adapter);
  }
  return { admin: remote(t, { url }), ...devices };
}

function device(t, url, name, adapter) {
  const address = new URL(url);
  Object.assign(address, { username: name, password: 'pw' });
  // A live replication ends before its databases are closed: hooks run in the order of their registration.
  const running = [];
  t.after(() => Promise.all(running.map((sync) => { sync.cancel(); return sync.catch(() => {}); })));
  const [own, there] = [local(t, adapter), remote(t, { url: address.href })];
  // Ids of documents with edits of this device that the server has refused.
  const refused = new Set();
  return {
    name,
    own,
    there,
    refused,
    async sync() {
      const push = own.replicate.to(there);
      push.on('denied', ({ id }) => refused.add(id));
      const pushed = await push;
      return { pushed, pulled: await own.replicate.from(there) };
    },
    live() {
      const sync = own.sync(there, { live: true });
      running.push(sync);
      return (holds, what) => until(sync, ['change', 'paused'], holds, what);
    },
  };
}

// Writes a document with a list. Names of users and roles are members of the list.
async function share(db, id, list, change = {}) {
  const old = await db.get(id).catch(() => ({ _id: id }));
  await db.put({ ...old, ...change, _access: list });
}

const docs = async (db) => (await db.allDocs({ include_docs: true })).rows.map(({ doc }) => doc);

// Compares the documents of a device with those that the server shows to its user. An edit that the server has refused
// remains on the device, next to or after the revision of the server if the user sees one. Documents with several leaves
// (`contested`) can be hidden on the device, as docs/access.md describes; the device shows none that its user does not see.
async function assertSettled({ own, there, refused }, contested = new Set()) {
  const [here, seen] = [await docs(own), await docs(there)];
  const shown = new Set(ids(seen));
  assert.deepEqual(here.filter(({ _id }) => contested.has(_id) && !refused.has(_id) && !shown.has(_id)), []);
  const visible = seen.filter(({ _id }) => !contested.has(_id));
  const settled = (doc) => !refused.has(doc._id) && !contested.has(doc._id);
  assert.deepEqual(here.filter(settled), visible.filter(settled));
  for (const { _id, _rev } of visible.filter(({ _id }) => refused.has(_id))) {
    const leaves = await own.get(_id, { open_revs: 'all', revs: true });
    const revs = leaves.flatMap(({ ok: { _revisions: { start, ids: hashes } } }) => hashes.map((hash, at) => `${start - at}-${hash}`));
    assert.ok(revs.includes(_rev), `${_id} has no revision ${_rev}`);
  }
}

for (const adapter of ['memory', 'leveldb']) {
  test(`${adapter}: two devices gain, lose, edit and delete documents, also while they are offline`, async (t) => {
    const { admin, ann, bob } = await world(t, { ann: ['team'], bob: ['team'] }, adapter);
    const both = async () => {
      for (const side of [ann, bob, ann, bob]) await side.sync();
      await assertSettled(ann);
      await assertSettled(bob);
    };
    await share(admin, 'of-ann', [ann.name], { text: 'old' });
    await share(admin, 'of-bob', [bob.name]);
    for (const number of [1, 2, 3, 4]) await share(admin, `team-${number}`, ['team'], { number });
    await admin.put({ _id: 'internal', text: 'of administrators' });
    await both();
    const team = ['team-1', 'team-2', 'team-3', 'team-4'];
    assert.deepEqual(ids(await docs(ann.own)), ['of-ann', ...team]);
    assert.deepEqual(ids(await docs(bob.own)), ['of-bob', ...team]);

    // A document that its writer may not write is refused alone.
    await share(bob.own, 'foreign', [ann.name]);
    await share(bob.own, 'note', [bob.name, 'team'], { text: 'from a device' });
    const { pushed } = await bob.sync();
    assert.deepEqual([pushed.docs_written, pushed.doc_write_failures, [...bob.refused]], [1, 1, ['foreign']]);
    await both();
    assert.equal((await ann.own.get('note')).text, 'from a device');

    // Conflict: both devices edit without a connection.
    for (const side of [ann, bob]) await side.own.put({ ...(await side.own.get('team-1')), text: side.name });
    await both();
    const [here, there] = [await ann.own.get('team-1', { conflicts: true }), await bob.own.get('team-1', { conflicts: true })];
    assert.equal(here._conflicts.length, 1);
    assert.deepEqual(here, there);
    await ann.own.remove('team-1', here._conflicts[0]);
    await both();
    assert.equal((await bob.own.get('team-1', { conflicts: true }))._conflicts, undefined);

    // Gain of an old document, loss of the same, and gain again. The owner changes the list without a connection.
    await share(ann.own, 'of-ann', [ann.name, bob.name]);
    await both();
    assert.equal((await bob.own.get('of-ann')).text, 'old');
    await share(ann.own, 'of-ann', [ann.name], { text: 'private' });
    await both();
    await assert.rejects(bob.own.get('of-ann'), status(404));
    await share(ann.own, 'of-ann', [ann.name, 'team']);
    await both();
    assert.equal((await bob.own.get('of-ann')).text, 'private');

    // Loss during an edit without a connection: the edit stays on the device, and the server refuses it.
    await bob.own.put({ ...(await bob.own.get('team-2')), text: 'not sent' });
    await share(admin, 'team-2', [ann.name]);
    await both();
    assert.ok(bob.refused.has('team-2'));
    assert.equal((await bob.own.get('team-2')).text, 'not sent');
    await assert.rejects(bob.there.get('team-2'), status(404));
    await share(admin, 'team-2', [ann.name, bob.name], { text: 'back' });
    await both();
    assert.equal((await bob.own.get('team-2')).text, 'back');

    // Deletion, also of a document that the other device has edited. The edit wins.
    await ann.own.remove(await ann.own.get('team-3'));
    await ann.own.remove(await ann.own.get('team-4'));
    await bob.own.put({ ...(await bob.own.get('team-4')), text: 'kept' });
    await both();
    await assert.rejects(bob.own.get('team-3'), status(404));
    assert.equal((await ann.own.get('team-4')).text, 'kept');

    // A new role shows documents that are older than the checkpoint.
    await share(admin, 'board-1', ['board']);
    await both();
    await setRoles(bob.name, ['team', 'board']);
    await both();
    assert.deepEqual(ids(await docs(bob.own)), ['board-1', 'foreign', 'note', 'of-ann', 'of-bob', 'team-1', 'team-2', 'team-4']);
    const { pulled } = await bob.sync();
    assert.deepEqual([pulled.docs_read, pulled.docs_written], [0, 0]);
  });
}

test('live: a device follows lists and roles', async (t) => {
  const { admin, ann, bob } = await world(t, { ann: [], bob: [] });
  await share(admin, 'old', ['team']);
  const waits = { ann: ann.live(), bob: bob.live() };
  const has = (side, id, expected) => async () => (await side.own.get(id).then(() => true, () => false)) === expected;
  await share(ann.own, 'a', [ann.name, bob.name]);
  await waits.bob(has(bob, 'a', true), 'a new document of another device');
  await share(ann.own, 'a', [ann.name]);
  await waits.bob(has(bob, 'a', false), 'a lost document');
  await setRoles(bob.name, ['team']);
  await waits.bob(has(bob, 'old', true), 'an old document of a new role');
  await ann.own.remove(await ann.own.get('a'));
  const changes = admin.changes({ live: true, since: 0 });
  t.after(() => changes.cancel());
  await until(changes, ['change'], async () => (await admin.info()).doc_del_count === 1, 'the deletion');
  for (const side of [ann, bob]) await assertSettled(side);
});

test('random edits, lists and deletions of two devices converge', async (t) => {
  const { admin, ann, bob } = await world(t, { ann: ['team'], bob: ['team'] });
  const seed = Number(process.env.SETTEE_SEED ?? Date.now() % 1_000_000);
  t.diagnostic(`SETTEE_SEED=${seed}`);
  let state = seed;
  const below = (limit) => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return (state >>> 8) % limit;
  };
  const lists = [[ann.name], [bob.name], [ann.name, bob.name], ['team'], [ann.name, 'team'], []];
  const sides = [ann, bob];
  for (let round = 0; round < 80; round += 1) {
    const side = sides[below(2)];
    const db = below(3) === 0 ? admin : side.own;
    const id = `doc-${below(12)}`;
    const doc = await db.get(id).catch(() => undefined);
    if (doc && below(6) === 0) await db.remove(doc);
    else if (doc && below(2) === 0) await db.put({ ...doc, round });
    else await share(db, id, lists[below(lists.length)], { round });
    if (below(4) === 0) await side.sync();
  }
  for (const side of [...sides, ...sides]) await side.sync();
  const leaves = (id) => admin.get(id, { open_revs: 'all' }).catch(() => []);
  const all = Array.from({ length: 12 }, (_, number) => `doc-${number}`);
  const contested = new Set();
  for (const id of all) if ((await leaves(id)).length > 1) contested.add(id);
  for (const side of sides) await assertSettled(side, contested);
});
