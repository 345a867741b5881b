// Shared by all suites: tests with a strict list of expected failures (`suite`), fresh databases (`databaseUrl`), PouchDB
// with its adapters, and a second server that can be killed (`startServer`).
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

// An open feed would keep this process alive indefinitely.
setTimeout(() => {
  console.error('timeout of the suite');
  process.exit(1);
}, 240_000).unref();

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'settee-clients-'));
process.on('exit', () => fs.rmSync(scratch, { recursive: true, force: true }));

let names = 0;

// Returns a function that declares tests. `notYet` maps the names of tests that are expected to fail to the reasons. A listed
// test that passes, and an entry without a test, fail the run.
function suite(notYet, limitMs = LIMIT_MS) {
  const unused = new Set(Object.keys(notYet));
  after(() => assert.deepEqual([...unused], [], 'entries of NOT_YET without a test'));
  return (name, body) => {
    unused.delete(name);
    const reason = notYet[name];
    const timeout = limitMs + 5_000;
    if (reason === undefined) {
      test(name, { timeout }, (t) => within(body(t), name, limitMs));
      return;
    }
    test(`${name} (not yet: ${reason})`, { timeout }, async (t) => {
      await assert.rejects(within(body(t), name, limitMs), () => true, 'the test passes: delete its entry in NOT_YET');
    });
  };
}

// Rejects after a timeout, so that a feed without events fails only its own test.
async function within(promise, what, limitMs = LIMIT_MS) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`timeout of "${what}" after ${limitMs} ms`)), limitMs);
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

// Creates a directory that is removed when the process exits.
function scratchDirectory() {
  const directory = path.join(scratch, freshName('directory'));
  fs.mkdirSync(directory);
  return directory;
}

// Returns the URL of a database that does not exist yet and that no other test uses.
function databaseUrl(server = SERVER) {
  return `${server}/${freshName()}`;
}

// Returns a PouchDB with the adapter `http`, which appends `METHOD /path` of each request to `requests`.
function remote(t, { server = SERVER, url = databaseUrl(server), requests = [], ...options } = {}) {
  const db = new PouchDB(url, {
    fetch: (address, request) => {
      const { pathname } = new URL(address);
      requests.push(`${request?.method ?? 'GET'} ${pathname.slice(new URL(url).pathname.length) || '/'}`);
      return PouchDB.fetch(address, request);
    },
    ...options,
  });
  // PouchDB cannot close a destroyed database.
  t.after(() => db._destroyed || db.close());
  return db;
}

const LOCAL = {
  memory: () => new PouchDB(freshName(), { adapter: 'memory' }),
  leveldb: () => new PouchDB(path.join(scratch, freshName()), { adapter: 'leveldb' }),
};

function local(t, adapter = 'memory') {
  const db = LOCAL[adapter]();
  t.after(() => db.close());
  return db;
}

// Sends a request without a client library and returns the parsed body. Fails if the status is not 2xx.
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

// Starts a server with its own data, which can be killed and restarted at the same address.
async function startServer(t) {
  const binary = process.env.SETTEE_BINARY;
  assert.ok(binary, 'SETTEE_BINARY must be the path of the server program');
  const port = await freePort();
  const data = path.join(scratch, freshName('server'));
  let child;
  const server = {
    url: `http://admin:pw@127.0.0.1:${port}`,
    async start() {
      // The previous process may still be exiting, and locks the data directory until then.
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

// Resolves with the first argument of an event; rejects on `error` or after a timeout.
async function event(emitter, name) {
  const [value] = await within(once(emitter, name), `event ${name}`);
  return value;
}

// Resolves when `holds()` returns true; the condition is checked at the start and after each of the named events.
function until(emitter, names, holds, what) {
  return within(
    new Promise((resolve, reject) => {
      const check = async () => {
        try {
          if (await holds()) resolve();
        } catch (error) {
          reject(error);
        }
      };
      for (const name of names) emitter.on(name, check);
      emitter.on('error', reject);
      check();
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
