// HTTP/2 with prior knowledge, with Node's own client and with curl: all requests share one connection.
'use strict';

const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const { once } = require('node:events');
const http2 = require('node:http2');
const { promisify } = require('node:util');

const { SERVER, event, freshName, http, suite } = require('./support.js');

const test = suite({});

const { username, password, origin } = new URL(SERVER);
const AUTHORIZATION = `Basic ${Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString('base64')}`;

function connect(t) {
  const session = http2.connect(origin);
  t.after(() => session.destroy());
  return session;
}

async function ask(session, method, path, body) {
  const stream = session.request({ ':method': method, ':path': path, authorization: AUTHORIZATION, 'content-type': 'application/json' });
  stream.end(body === undefined ? undefined : JSON.stringify(body));
  const headers = await event(stream, 'response');
  stream.setEncoding('utf8');
  let text = '';
  for await (const piece of stream) text += piece;
  return { status: headers[':status'], headers, json: text ? JSON.parse(text) : undefined };
}

test('documents over one connection', async (t) => {
  const session = connect(t);
  const db = `/${freshName('h2')}`;
  assert.equal((await ask(session, 'PUT', db)).status, 201);
  const docs = Array.from({ length: 500 }, (_, at) => ({ _id: `doc${at}`, text: 'x'.repeat(2000) }));
  assert.equal((await ask(session, 'POST', `${db}/_bulk_docs`, { docs })).json.length, 500);
  const reads = await Promise.all(docs.map(({ _id }) => ask(session, 'GET', `${db}/${_id}`)));
  assert.ok(reads.every(({ status, json }, at) => status === 200 && json._id === `doc${at}`));
  const list = await ask(session, 'GET', `${db}/_all_docs?include_docs=true`);
  assert.equal(list.json.rows.length, 500);
  const missing = await ask(session, 'GET', `${db}/missing`);
  assert.deepEqual([missing.status, missing.json.error], [404, 'not_found']);
});

test('more concurrent feeds than the connection limit of a browser', async (t) => {
  const session = connect(t);
  const db = `/${freshName('h2')}`;
  await ask(session, 'PUT', db);
  const feeds = Array.from({ length: 30 }, () => {
    const feed = session.request({ ':path': `${db}/_changes?feed=continuous&heartbeat=30000`, authorization: AUTHORIZATION });
    feed.setEncoding('utf8');
    feed.on('error', () => {});
    return feed;
  });
  await Promise.all(feeds.map((feed) => once(feed, 'response')));
  await ask(session, 'PUT', `${db}/news`, {});
  // An idle feed sends an empty line first.
  const line = (feed) => new Promise((resolve) => feed.on('data', (text) => text.trim() && resolve(text)));
  const lines = await Promise.all(feeds.map(line));
  assert.ok(lines.every((line) => JSON.parse(line).id === 'news'));
});

test('upload and download of an attachment of 5 MB', async (t) => {
  const session = connect(t);
  const db = `/${freshName('h2')}`;
  await ask(session, 'PUT', db);
  const bytes = Buffer.from(Array.from({ length: 5_000_000 }, (_, at) => (at * 7 + (at >> 8)) % 256));
  const upload = session.request({
    ':method': 'PUT',
    ':path': `${db}/doc/data`,
    authorization: AUTHORIZATION,
    'content-type': 'application/octet-stream',
  });
  upload.end(bytes);
  upload.resume();
  assert.equal((await event(upload, 'response'))[':status'], 201);
  const download = session.request({ ':path': `${db}/doc/data`, authorization: AUTHORIZATION });
  const pieces = [];
  for await (const piece of download) pieces.push(piece);
  assert.ok(Buffer.concat(pieces).equals(bytes));
});

test('curl with prior knowledge', async () => {
  const name = freshName('h2');
  await http('PUT', `${SERVER}/${name}`);
  const curl = promisify(execFile);
  const format = '\n%{http_version} %{response_code}';
  const printed = await curl('curl', ['-s', '--http2-prior-knowledge', '-w', format, `${SERVER}/${name}/_all_docs`]);
  assert.ok(printed.stdout.endsWith('\n2 200'), printed.stdout);
});
