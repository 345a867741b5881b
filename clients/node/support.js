// What all suites share: tests with a strict list of what is not there yet (`suite`), databases of
// their own (`databaseUrl`), PouchDB with its adapters, and a second server that may be stopped
// (`startServer`). Nothing here knows what a test is about.
'use strict';

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { after, test } = require('node:test');

const PouchDB = require('pouchdb');
PouchDB.plugin(require('pouchdb-adapter-memory'));
PouchDB.plugin(require('pouchdb-find'));

const LIMIT_MS = 30_000;
const SERVER = process.env.SETTEE_URL;
assert.ok(SERVER, 'SETTEE_URL must name a server, with the name and password of an admin');

// A feed that nobody ended would keep this process alive for ever.
setTimeout(() => {
  console.error('the suite did not end');
  process.exit(1);
}, 240_000).unref();

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'settee-clients-'));
process.on('exit', () => fs.rmSync(scratch, { recursive: true, force: true }));

let names = 0;

// Declares tests. `notYet` maps the name of a test that the server cannot pass yet to the reason. Such
// a test must fail; one that passes, and an entry without a test, fail the run.
function suite(notYet, limitMs = LIMIT_MS) {
  const unused = new Set(Object.keys(notYet));
  after(() => assert.deepEqual([...unused], [], 'entries of the list that name no test'));
  return (name, body) => {
    unused.delete(name);
    const reason = notYet[name];
    const timeout = limitMs + 5_000;
    if (reason === undefined) {
      test(name, { timeout }, (t) => within(body(t), name, limitMs));
      return;
    }
    test(`${name} (not yet: ${reason})`, { timeout }, async (t) => {
      await assert.rejects(within(body(t), name, limitMs), () => true, 'this passes: delete its line in the list');
    });
  };
}

// `promise`, or an error once it takes too long: a feed that stays silent then fails its own test only.
async function within(promise, what, limitMs = LIMIT_MS) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end of "${what}" within ${limitMs} ms`)), limitMs);
  });
  try {
    return await Promise.race([promise, limit]);
  } finally {
    clearTimeout(timer);
  }
}

function freshName(prefix = 'clients') {
  names += 1;
  return `${prefix}-${process.pid}-${names}`;
}

// A directory that is removed at the end.
function scratchDirectory() {
  const directory = path.join(scratch, freshName('directory'));
  fs.mkdirSync(directory);
  return directory;
}

// The address of a database that nobody else uses and that does not exist yet.
function databaseUrl(server = SERVER) {
  return `${server}/${freshName()}`;
}

// A database of the server through PouchDB's adapter `http`. `requests` fills with `METHOD /path`.
function remote(t, { server = SERVER, url = databaseUrl(server), requests = [], ...options } = {}) {
  const db = new PouchDB(url, {
    fetch: (address, request) => {
      const { pathname } = new URL(address);
      requests.push(`${request?.method ?? 'GET'} ${pathname.slice(new URL(url).pathname.length) || '/'}`);
      return PouchDB.fetch(address, request);
    },
    ...options,
  });
  // One that was destroyed cannot be closed.
  t.after(() => db._destroyed || db.close());
  return db;
}

const LOCAL = {
  memory: () => new PouchDB(freshName(), { adapter: 'memory' }),
  leveldb: () => new PouchDB(path.join(scratch, freshName()), { adapter: 'leveldb' }),
};

// A PouchDB of this process.
function local(t, adapter = 'memory') {
  const db = LOCAL[adapter]();
  t.after(() => db.close());
  return db;
}

// A request without any client library; answers the parsed body.
async function http(method, address, body) {
  const url = new URL(address);
  const credentials = Buffer.from(`${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`);
  url.username = '';
  url.password = '';
  const response = await fetch(url, {
    method,
    headers: { authorization: `Basic ${credentials.toString('base64')}`, 'content-type': 'application/json' },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const json = await response.json();
  assert.ok(response.ok, `${method} ${url.pathname}: ${response.status} ${JSON.stringify(json)}`);
  return json;
}

async function freePort() {
  const listener = net.createServer().listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const { port } = listener.address();
  listener.close();
  await once(listener, 'close');
  return port;
}

// A server with data of its own that can be killed and started again at the same address.
async function startServer(t) {
  const binary = process.env.SETTEE_BINARY;
  assert.ok(binary, 'SETTEE_BINARY must be the path of the server program');
  const port = await freePort();
  const data = path.join(scratch, freshName('server'));
  let child;
  const server = {
    url: `http://admin:pw@127.0.0.1:${port}`,
    async start() {
      // Its predecessor was perhaps killed only now, and holds the data as long as it is there.
      if (child && child.exitCode === null && child.signalCode === null) await once(child, 'exit');
      child = spawn(binary, ['serve', '--bind', '127.0.0.1', '--port', String(port), '--data', data], {
        env: { ...process.env, COUCHDB_USER: 'admin', COUCHDB_PASSWORD: 'pw' },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let printed = '';
      for await (const text of child.stdout.iterator({ destroyOnReturn: false })) {
        printed += text;
        if (printed.includes(`:${port}/`)) break;
      }
      assert.ok(printed.includes(`:${port}/`), `the server ended before it listened: ${printed}`);
      child.stdout.resume();
    },
    // Without a chance to tidy up, as a crash would.
    async kill() {
      if (!child || child.exitCode !== null || child.signalCode !== null) return;
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
  };
  t.after(() => server.kill());
  await server.start();
  return server;
}

// Resolves with the first argument of an event, rejects on `error`.
async function event(emitter, name) {
  const [value] = await within(once(emitter, name), `event ${name}`);
  return value;
}

// Resolves once `holds()` does, asked again after every one of the named events.
function until(emitter, names, holds, what) {
  return within(
    new Promise((resolve, reject) => {
      const look = async () => {
        try {
          if (await holds()) resolve();
        } catch (error) {
          reject(error);
        }
      };
      for (const name of names) emitter.on(name, look);
      emitter.on('error', reject);
      look();
    }),
    what,
  );
}

const status = (expected) => (error) => {
  assert.equal(error.status ?? error.statusCode, expected, `${error.stack ?? error}`);
  return true;
};

const ids = (rows) => rows.map((row) => row.id ?? row._id);

module.exports = {
  PouchDB,
  SERVER,
  databaseUrl,
  event,
  freshName,
  http,
  ids,
  local,
  remote,
  scratchDirectory,
  startServer,
  status,
  suite,
  until,
  within,
};
