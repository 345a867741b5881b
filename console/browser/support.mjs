// A browser for tests, a server to test, and data in it. The server is where SETTEE_URL says, with an administrator's name and password.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { chromium } from 'playwright-core';

const given = new URL(process.env.SETTEE_URL ?? 'http://admin:pw@127.0.0.1:5984');
export const NAME = decodeURIComponent(given.username);
export const PASSWORD = decodeURIComponent(given.password);
export const ORIGIN = given.origin;
/** Where the console is; another place than the server's when a proxy stands between. */
export const CONSOLE = process.env.CONSOLE_URL ?? `${ORIGIN}/_utils/`;

const ARGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
const env = { ...process.env, NO_PROXY: '*' };

export function launch() {
  return chromium.launch({ executablePath, args: ARGS, env });
}

/** A browser whose data outlives it. */
export function launchLasting(profile) {
  return chromium.launchPersistentContext(profile, { executablePath, args: ARGS, env, viewport: { width: 1400, height: 900 }, reducedMotion: 'reduce' });
}

/** Kills the browser of this profile, which gets no chance to write anything. */
export async function crash(context, profile) {
  const closed = new Promise((resolve) => context.once('close', resolve));
  const host = readlinkSync(join(profile, 'SingletonLock'));
  process.kill(Number(host.slice(host.lastIndexOf('-') + 1)), 'SIGKILL');
  await closed;
  for (const name of readdirSync(profile)) if (name.startsWith('Singleton')) rmSync(join(profile, name), { force: true });
}

const basic = `Basic ${Buffer.from(`${NAME}:${PASSWORD}`).toString('base64')}`;

/** Asks the server itself, as the administrator. */
export async function http(method, path, body, headers = {}) {
  const text = body === undefined || typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body);
  const response = await fetch(`${ORIGIN}/${path}`, { method, body: text, headers: { authorization: basic, 'content-type': 'application/json', ...headers } });
  const answer = await response.text();
  try {
    return { status: response.status, body: JSON.parse(answer), text: answer };
  } catch {
    return { status: response.status, body: undefined, text: answer };
  }
}

export async function made(method, path, body, headers) {
  const answer = await http(method, path, body, headers);
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.text.slice(0, 300)}`);
  return answer.body;
}

/**
 * Starts a server of its own with the program SETTEE_BINARY. Settings are `section/key=value`. Without `admin` it has no administrator. With `port` it listens there
 * after a restart as well.
 * Returns its address and a function that ends it.
 */
export async function startServer({ settings = [], admin = true, port = 0 } = {}) {
  const data = mkdtempSync(join(tmpdir(), 'settee-console-'));
  const env = { ...process.env, COUCHDB_USER: NAME, COUCHDB_PASSWORD: PASSWORD };
  if (!admin) for (const name of ['COUCHDB_USER', 'COUCHDB_PASSWORD']) delete env[name];
  const child = spawn(process.env.SETTEE_BINARY, ['serve', '--bind', '127.0.0.1', '--port', String(port), '--data', data, ...settings.flatMap((setting) => ['--set', setting])], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const stop = () => {
    child.kill('SIGKILL');
    rmSync(data, { recursive: true, force: true });
  };
  let output = '';
  try {
    const address = await new Promise((resolve, reject) => {
      const read = (piece) => {
        output += piece;
        const found = /http:\/\/127\.0\.0\.1:\d+/.exec(output);
        if (found) resolve(found[0]);
      };
      child.stdout.on('data', read);
      child.stderr.on('data', read);
      child.on('exit', () => reject(new Error(output)));
    });
    return { address, stop };
  } catch (error) {
    stop();
    throw error;
  }
}

/** A page that is logged in. `problems` fills with what no page may do: exceptions, and loads that its policy refuses. */
export async function openPage(browser, { theme = 'light', width = 1400, height = 900, user = NAME, password = PASSWORD, start = '#/databases', base = CONSOLE } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: 'reduce', acceptDownloads: true });
  // Chromium itself wants to style what is pasted into an editable element, is kept from it, and nothing is lost.
  await context.addInitScript(() => document.addEventListener('securitypolicyviolation', (event) => {
    if (!event.composedPath()[0]?.closest?.('.cm-content')) console.error(`refused: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
  }));
  const page = watch(await context.newPage());
  if (user !== null) await login(context, { base, user, password });
  await page.goto(base + start);
  return page;
}

export async function login(context, { base = CONSOLE, user = NAME, password = PASSWORD } = {}) {
  const answer = await context.request.post(new URL('../_session', base).href, { data: { name: user, password } });
  assert.equal(answer.status(), 200, await answer.text());
}

/** Collects what no page may do. */
export function watch(page) {
  page.setDefaultTimeout(10_000);
  page.problems = [];
  page.on('pageerror', (error) => page.problems.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error' && !/Failed to load resource|Applying inline style/.test(message.text())) page.problems.push(message.text());
  });
  page.on('dialog', (dialog) => {
    page.problems.push(`a dialog opened: ${dialog.message()}`);
    void dialog.dismiss();
  });
  return page;
}

/**
 * Declares flows: actions of a user from the page `start` on, after which the page must have no problems. On a machine that is busy with
 * other things one may fail that is right: it is tried a second time, and its first failure told.
 */
export function flows(browser) {
  const once = async (start, body) => {
    const page = await openPage(browser(), { start });
    try {
      await body(page);
      assert.deepEqual(page.problems, []);
    } catch (error) {
      const shown = await page.locator('#content').innerText({ timeout: 500 }).catch(() => '');
      throw new Error(`${error.message}\n--- ${page.url()} ${page.problems.join('; ')}\n${shown.slice(0, 700)}`, { cause: error });
    } finally {
      await page.context().close();
    }
  };
  return (name, start, body) => test(name, { timeout: 80_000 }, async (context) => {
    try {
      await once(start, body);
    } catch (error) {
      context.diagnostic(`tried again: ${error.message}`);
      await once(start, body);
    }
  });
}

let turn = 0;
export function freshName(what) {
  turn += 1;
  return `${what}-${process.pid}-${Date.now().toString(36)}-${turn}`;
}

const CITIES = ['Berlin', 'Lagos', 'Lima', 'Oslo', 'Quito', 'Rome', 'Seoul', 'Tunis'];
const STATES = ['paid', 'open', 'sent', 'returned'];

export function orders(count, from = 0) {
  return Array.from({ length: count }, (_, index) => {
    const at = from + index;
    return {
      _id: `order-${String(at).padStart(7, '0')}`, type: 'order', customer: `Customer ${(at * 7919) % 1000}`, city: CITIES[(at * 31) % CITIES.length], state: STATES[(at * 17) % STATES.length],
      total: ((at * 7919) % 100_000) / 100, placed: new Date(Date.UTC(2024, at % 24, (at % 28) + 1)).toISOString().slice(0, 10), lines: [{ sku: `S-${at % 50}`, count: (at % 5) + 1 }],
    };
  });
}

export const DESIGN = {
  _id: '_design/orders',
  views: {
    by_city: { map: 'function (doc) {\n  if (doc.type === "order") {\n    emit([doc.city, doc.state], doc.total);\n  }\n}', reduce: '_stats' },
    by_month: { map: 'function (doc) {\n  emit(doc.placed.slice(0, 7), doc.total);\n}', reduce: '_sum' },
    by_customer: { map: 'function (doc) {\n  emit(doc.customer, null);\n}' },
  },
  nouveau: {
    orders: { index: 'function (doc) {\n  if (doc.type !== "order") return;\n  index("text", "city", doc.city, {store: true});\n  index("string", "state", doc.state, {store: true});\n  index("double", "total", doc.total, {store: true});\n}' },
  },
  filters: { paid: 'function (doc, req) {\n  return doc.state === "paid";\n}' },
};

/** A database with orders, views of them, a conflict and attachments. */
export async function seed(name, count = 400) {
  await made('PUT', name, {});
  for (let from = 0; from < count; from += 5000) await made('POST', `${name}/_bulk_docs`, { docs: orders(Math.min(5000, count - from), from) });
  await made('PUT', `${name}/${encodeURIComponent(DESIGN._id)}`.replace('%2F', '/'), DESIGN);
  await made('POST', `${name}/_index`, { index: { fields: ['state', 'placed'] }, name: 'by-state', ddoc: 'queries' });
  const exact = '{"_id":"exact","big":12345678901234567890,"price":1.50,"small":1e-7,"name":"Numbers are kept"}';
  await made('PUT', `${name}/exact`, exact);
  await made('POST', `${name}/_bulk_docs`, { new_edits: false, docs: [
    { _id: 'torn', _rev: '1-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', title: 'Sofa', price: 120, colour: 'green' },
    { _id: 'torn', _rev: '1-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', title: 'Sofa', price: 140, colour: 'green', note: 'from Lima' },
  ] });
  const { rev } = await made('PUT', `${name}/files`, { title: 'With files' });
  const second = await made('PUT', `${name}/files/notes.txt?rev=${rev}`, 'A settee is a small couch.\n', { 'content-type': 'text/plain' });
  const png = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAIUlEQVR42mNgGAWjYBSMglEwCkbBKBgFo2AUjIJRMAoGPwAQEAABOQj0FQAAAABJRU5ErkJggg==', 'base64');
  await made('PUT', `${name}/files/square.png?rev=${second.rev}`, new Uint8Array(png), { 'content-type': 'image/png' });
}
