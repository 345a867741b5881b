// Browser, server and test data. SETTEE_URL is the URL of the server with name and password of an administrator.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import axe from 'axe-core';
import { chromium } from 'playwright-core';

const given = new URL(process.env.SETTEE_URL ?? 'http://admin:pw@127.0.0.1:5984');
export const NAME = decodeURIComponent(given.username);
export const PASSWORD = decodeURIComponent(given.password);
export const ORIGIN = given.origin;
/** URL of the console. It differs from that of the server if a proxy is used. */
export const CONSOLE = process.env.CONSOLE_URL ?? `${ORIGIN}/_utils/`;

const ARGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
const env = { ...process.env, NO_PROXY: '*' };

export function launch() {
  return chromium.launch({ executablePath, args: ARGS, env });
}

/** Launches a browser with a persistent profile. */
export function launchWithProfile(profile) {
  return chromium.launchPersistentContext(profile, { executablePath, args: ARGS, env, viewport: { width: 1400, height: 900 }, reducedMotion: 'reduce' });
}

/** Kills the browser of this profile without a shutdown. */
export async function crash(context, profile) {
  const closed = new Promise((resolve) => context.once('close', resolve));
  const host = readlinkSync(join(profile, 'SingletonLock'));
  process.kill(Number(host.slice(host.lastIndexOf('-') + 1)), 'SIGKILL');
  await closed;
  for (const name of readdirSync(profile)) if (name.startsWith('Singleton')) rmSync(join(profile, name), { force: true });
}

const basic = `Basic ${Buffer.from(`${NAME}:${PASSWORD}`).toString('base64')}`;

/** Sends a request to the server as the administrator. */
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

/** Sends a request that must succeed, and returns the parsed body. */
export async function httpOk(method, path, body, headers) {
  const answer = await http(method, path, body, headers);
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.text.slice(0, 300)}`);
  return answer.body;
}

/**
 * Starts a server with the program SETTEE_BINARY and an empty data directory. Settings are `section/key=value`. Without `admin` it has no
 * administrator. A given `port` is kept across a restart. Returns the address and a function that stops the server.
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

/** Opens a page with a session. `problems` collects exceptions, errors and violations of the content security policy. */
export async function openPage(browser, { theme = 'light', width = 1400, height = 900, user = NAME, password = PASSWORD, start = '#/databases', base = CONSOLE } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: 'reduce', acceptDownloads: true });
  // Chromium itself tries to style text that is pasted into an editable element. The policy blocks this without consequences.
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

/** Collects exceptions, errors and dialogs of a page in `problems`. */
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
 * Returns a function that declares tests of user actions. Each test has its own page, opened at `start`, which must have no problems at the
 * end. A failed test is retried once, because timeouts can expire on a loaded machine; the first failure is reported.
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
      context.diagnostic(`retry after: ${error.message}`);
      await once(start, body);
    }
  });
}

/** Returns the violations of WCAG 2.2 A and AA that axe reports. */
export async function violations(page) {
  await page.evaluate(axe.source);
  return page.evaluate(async () => {
    const found = await globalThis.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] });
    return found.violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html, any }) => `${html.slice(0, 160)} ${any[0]?.message ?? ''}`).join(' | ')}`);
  });
}

let names = 0;
export function freshName(prefix) {
  names += 1;
  return `${prefix}-${process.pid}-${Date.now().toString(36)}-${names}`;
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

/** Creates a database with orders, views, indexes, a conflict and attachments. */
export async function seed(name, count = 400) {
  await httpOk('PUT', name, {});
  for (let from = 0; from < count; from += 5000) await httpOk('POST', `${name}/_bulk_docs`, { docs: orders(Math.min(5000, count - from), from) });
  await httpOk('PUT', `${name}/${encodeURIComponent(DESIGN._id)}`.replace('%2F', '/'), DESIGN);
  await httpOk('POST', `${name}/_index`, { index: { fields: ['state', 'placed'] }, name: 'by-state', ddoc: 'queries' });
  const exact = '{"_id":"exact","big":12345678901234567890,"price":1.50,"small":1e-7,"name":"Numbers are kept"}';
  await httpOk('PUT', `${name}/exact`, exact);
  await httpOk('POST', `${name}/_bulk_docs`, { new_edits: false, docs: [
    { _id: 'torn', _rev: '1-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', title: 'Sofa', price: 120, colour: 'green' },
    { _id: 'torn', _rev: '1-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', title: 'Sofa', price: 140, colour: 'green', note: 'from Lima' },
  ] });
  const { rev } = await httpOk('PUT', `${name}/files`, { title: 'With files' });
  const second = await httpOk('PUT', `${name}/files/notes.txt?rev=${rev}`, 'A settee is a small couch.\n', { 'content-type': 'text/plain' });
  const png = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAIUlEQVR42mNgGAWjYBSMglEwCkbBKBgFo2AUjIJRMAoGPwAQEAABOQj0FQAAAABJRU5ErkJggg==', 'base64');
  await httpOk('PUT', `${name}/files/square.png?rev=${second.rev}`, new Uint8Array(png), { 'content-type': 'image/png' });
}
