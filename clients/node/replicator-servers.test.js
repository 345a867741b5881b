// Two servers replicate over a faulty connection: it is cut, it is slow, it returns errors, and one of the servers is killed.
// At the end both contain the same documents.
'use strict';

const assert = require('node:assert/strict');
const { once } = require('node:events');
const net = require('node:net');
const { SERVER, freshName, http, remote, startServer, suite } = require('./support.js');

// Tests that are expected to fail, with reasons. An entry whose test passes fails the run.
const NOT_YET = {};

// The replicator retries a failed replication after half a minute or more.
const test = suite(NOT_YET, 120_000);

// Returns a pseudo-random generator, so that a run can be repeated with its seed.
function numbers(seed) {
  let state = seed;
  return (bound) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state % bound;
  };
}

// Starts a proxy to `port`. `line.cutAfter()` returns the number of bytes after which a new connection is cut.
// `line.status` is the status of every response, if set. `line.chunk` is the number of bytes that are sent every 10 ms.
async function startLine(t, port) {
  const sockets = new Set();
  const line = { cutAfter: () => Infinity, status: null, chunk: null, connections: 0 };
  const listener = net.createServer((near) => {
    line.connections += 1;
    sockets.add(near);
    near.on('error', () => {});
    near.on('close', () => sockets.delete(near));
    if (line.status) {
      const body = '{"error":"line","reason":"injected error"}';
      const answer = `HTTP/1.1 ${line.status} No\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n`;
      near.once('data', () => near.end(answer + body));
      return;
    }
    const far = net.connect(port, '127.0.0.1');
    sockets.add(far);
    let left = line.cutAfter();
    const end = () => {
      near.destroy();
      far.destroy();
    };
    const forward = (from, to) => {
      from.on('data', async (bytes) => {
        left -= bytes.length;
        if (left < 0) return end();
        if (line.chunk === null) return void to.write(bytes);
        from.pause();
        for (let at = 0; at < bytes.length; at += line.chunk) {
          to.write(bytes.subarray(at, at + line.chunk));
          await new Promise((resolve) => setTimeout(resolve, 10));
        }
        from.resume();
      });
      from.on('error', end);
      from.on('close', end);
    };
    forward(near, far);
    forward(far, near);
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  line.url = `http://admin:pw@127.0.0.1:${listener.address().port}`;
  line.cut = () => sockets.forEach((socket) => socket.destroy());
  t.after(() => {
    line.cut();
    listener.close();
  });
  return line;
}

async function pair(t) {
  const other = await startServer(t);
  const line = await startLine(t, Number(new URL(other.url).port));
  const name = freshName();
  const [here, there] = [remote(t, { url: `${SERVER}/${name}` }), remote(t, { url: `${other.url}/${name}` })];
  await Promise.all([here.info(), there.info()]);
  return { other, line, name, here, there };
}

async function keepAlike(t, { name, line }) {
  for (const body of [
    { source: name, target: `${line.url}/${name}`, continuous: true },
    { source: `${line.url}/${name}`, target: name, continuous: true },
  ]) {
    const id = freshName('rep');
    await http('PUT', `${SERVER}/_replicator/${id}`, body);
    t.after(async () => {
      const { _rev } = await http('GET', `${SERVER}/_replicator/${id}`);
      await http('DELETE', `${SERVER}/_replicator/${id}?rev=${_rev}`);
    });
  }
}

async function write(db, prefix, count) {
  const bytes = Buffer.alloc(3000, prefix).toString('base64');
  const docs = Array.from({ length: count }, (_, at) => ({
    _id: `${prefix}${String(at).padStart(4, '0')}`,
    at,
    _attachments: at % 10 === 0 ? { a: { content_type: 'application/octet-stream', data: bytes } } : undefined,
  }));
  const failed = (await db.bulkDocs(docs)).filter((row) => !row.ok);
  assert.deepEqual(failed, []);
}

const leaves = async (db) => {
  const { results } = await db.changes({ since: 0, style: 'all_docs' });
  return results.map(({ id, changes }) => `${id} ${changes.map((change) => change.rev).sort()}`).sort();
};

async function alike(one, other, limitMs = 100_000) {
  const limit = Date.now() + limitMs;
  for (;;) {
    const [left, right] = await Promise.all([leaves(one), leaves(other)]);
    if (left.length === right.length && left.every((row, at) => row === right[at])) return left;
    assert.ok(Date.now() < limit, `${left.length} and ${right.length} documents`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

test('over a connection that is cut repeatedly', async (t) => {
  const seed = Number(process.env.SEED ?? Date.now() % 1_000_000);
  t.diagnostic(`SEED=${seed}`);
  const random = numbers(seed);
  const both = await pair(t);
  both.line.cutAfter = () => 2_000 + random(200_000);
  await write(both.here, 'h', 400);
  await write(both.there, 't', 400);
  await keepAlike(t, both);
  const cutting = setInterval(both.line.cut, 300);
  setTimeout(() => {
    clearInterval(cutting);
    both.line.cutAfter = () => Infinity;
  }, 3000);
  const rows = await alike(both.here, both.there);
  assert.equal(rows.length, 800);
  assert.ok(both.line.connections > 5, `${both.line.connections} connections`);
  const { _attachments } = await both.there.get('h0010', { attachments: true });
  assert.equal(Buffer.from(_attachments.a.data, 'base64').length, 3000);
});

test('over a slow connection', async (t) => {
  const both = await pair(t);
  both.line.chunk = 4000;
  await write(both.here, 'h', 60);
  await keepAlike(t, both);
  assert.equal((await alike(both.here, both.there)).length, 60);
});

test('over a connection that returns errors for a second', async (t) => {
  // Concurrently, because after some errors the replicator waits for half a minute.
  await Promise.all(
    [403, 429, 500, 503].map(async (status) => {
      const both = await pair(t);
      both.line.status = status;
      await write(both.here, 'h', 20);
      await keepAlike(t, both);
      setTimeout(() => (both.line.status = null), 1000);
      assert.equal((await alike(both.here, both.there)).length, 20, `${status}`);
    }),
  );
});

test('while the peer is killed and restarted', async (t) => {
  const both = await pair(t);
  await write(both.here, 'h', 300);
  await keepAlike(t, both);
  for (let round = 0; round < 3; round += 1) {
    await both.other.kill();
    await both.other.start();
    await write(both.there, `t${round}`, 50);
  }
  assert.equal((await alike(both.here, both.there)).length, 450);
});
