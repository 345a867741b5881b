// Several servers in one window, and backups.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { CONSOLE, NAME, PASSWORD, freshName, http, launch, httpOk, openPage, startServer, violations, watch } from './support.mjs';

const skip = !process.env.SETTEE_BINARY;
const POLICY = '_node/_local/_config/csp/utils_header_value';
const basic = { authorization: `Basic ${Buffer.from(`${NAME}:${PASSWORD}`).toString('base64')}`, 'content-type': 'application/json' };

let browser;
before(async () => { browser = await launch(); });
after(async () => { await browser?.close(); });

/** Sends a request to a server that a test has started. */
async function send(address, method, path, body) {
  const response = await fetch(`${address}/${path}`, { method, headers: basic, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await response.text();
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
  return JSON.parse(text);
}

test('another server is added, used and removed in one window', { timeout: 120_000, skip }, async () => {
  const { address, stop } = await startServer({ settings: ['chttpd/enable_cors=true', `cors/origins=${new URL(CONSOLE).origin}`, 'cors/headers=accept, authorization, content-type', 'cors/methods=GET, PUT, POST, HEAD, DELETE'] });
  const policyNow = async () => (await fetch(CONSOLE, { method: 'HEAD' })).headers.get('content-security-policy');
  const policy = await policyNow();
  const name = address.replace('//', '');
  const [here, there] = [freshName('here'), freshName('there')];
  try {
    await httpOk('PUT', here, {});
    await send(address, 'PUT', there, {});
    await send(address, 'PUT', `${there}/a`, { where: 'there' });
    const page = await openPage(browser, { start: '#/servers' });
    const row = (text) => page.getByRole('row', { name: new RegExp(text) });

    // No request is sent to a server that is not listed.
    const foreign = [];
    page.on('request', (request) => { if (request.url().startsWith(address)) foreign.push(request.url()); });
    await page.getByText('No other servers').waitFor();
    await page.goto(`${CONSOLE}?unlisted#/~${encodeURIComponent(name)}/databases`);
    await page.getByText(`${name} is not in the list`).waitFor();
    assert.deepEqual(foreign, []);
    await page.getByRole('button', { name: /^Servers of/ }).click();

    await page.getByLabel('URL').fill(`${address}/_utils/#/databases`);
    await page.getByRole('button', { name: 'Add' }).click();
    await page.getByRole('table').getByRole('link', { name }).click();
    await page.getByRole('heading', { name: `Log in to ${name}` }).waitFor();
    await page.getByRole('textbox', { name: 'Name' }).fill(NAME);
    await page.getByLabel('Password').fill('wrong');
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByText('Name or password is wrong.').waitFor();
    await page.getByLabel('Password').fill(PASSWORD);
    await page.getByRole('button', { name: 'Log in' }).click();
    await row(there).waitFor();
    assert.equal(await row(here).count(), 0);
    assert.ok((await page.title()).includes(name), await page.title());

    // Writes are sent to the other server, and links contain it.
    await page.getByRole('link', { name: there }).click();
    await page.getByRole('region', { name: 'Documents' }).getByRole('link', { name: 'a', exact: true }).click();
    await page.locator('.cm-content').getByText('"there"').click();
    await page.keyboard.press('End');
    await page.keyboard.type(', "more": 1');
    await page.keyboard.press('Control+s');
    await page.getByText('Saved as 2-').waitFor();
    assert.equal((await send(address, 'GET', `${there}/a`)).more, 1);
    assert.ok(page.url().includes('#/~'), page.url());

    // Each server keeps its page and its login.
    const servers = page.getByRole('navigation', { name: 'Servers' });
    const tab = (text) => servers.getByRole('link', { name: text, exact: true });
    const host = new URL(CONSOLE).host;
    const document = page.url();
    assert.deepEqual(await violations(page), []);
    await tab(host).click();
    await page.getByRole('heading', { name: 'Servers' }).waitFor();
    assert.equal(await tab(host).getAttribute('aria-current'), 'page');
    await page.evaluate((hash) => { location.hash = hash; }, `#/db/${here}`);
    await page.getByRole('heading', { name: here }).waitFor();
    await tab(name).click();
    await page.locator('.cm-content').getByText('"there"').waitFor();
    assert.equal(page.url(), document);

    // A tab of the browser is independent: it uses its own server, and its login and its pages are its own.
    const second = watch(await page.context().newPage());
    await second.goto(`${CONSOLE}#/db/${here}/changes`);
    await second.getByRole('heading', { name: here }).waitFor();
    await page.getByRole('link', { name: 'Databases' }).first().click();
    await row(there).waitFor();
    await second.reload();
    await second.getByRole('heading', { name: here }).waitFor();
    await second.getByRole('navigation', { name: 'Servers' }).getByRole('link', { name, exact: true }).click();
    await second.getByRole('heading', { name: `Log in to ${name}` }).waitFor();
    assert.deepEqual(second.problems, []);
    await second.close();
    await tab(host).click();
    await page.getByRole('heading', { name: here }).waitFor();
    await tab(name).click();
    await row(there).waitFor();
    await page.getByRole('button', { name: `Session of ${NAME}` }).click();
    await page.getByRole('button', { name: 'Log out' }).click();
    await page.getByRole('heading', { name: `Log in to ${name}` }).waitFor();
    assert.deepEqual(await page.evaluate(() => Object.keys(sessionStorage).filter((key) => key.startsWith('settee-login'))), []);

    await page.getByRole('button', { name: /^Back to/ }).click();
    await page.getByRole('heading', { name: here }).waitFor();
    await page.goto(`${CONSOLE}?removed#/servers`);
    await page.getByRole('button', { name: `Remove ${name}` }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
    await page.getByText('No other servers').waitFor();
    assert.equal(await policyNow(), policy);
    assert.deepEqual(page.problems, []);
    await page.context().close();
  } finally {
    stop();
    await http('DELETE', POLICY);
    await http('DELETE', here);
  }
});

test('all servers and their databases are shown side by side', { timeout: 120_000, skip }, async () => {
  const cors = ['chttpd/enable_cors=true', `cors/origins=${new URL(CONSOLE).origin}`, 'cors/headers=accept, authorization, content-type', 'cors/methods=GET, PUT, POST, HEAD, DELETE'];
  const [left, right] = [await startServer({ settings: cors }), await startServer({ settings: cors })];
  const names = [left, right].map(({ address }) => address.replace('//', ''));
  const [same, other, missing] = [freshName('same'), freshName('other'), freshName('missing')];
  const policy = (await fetch(CONSOLE, { method: 'HEAD' })).headers.get('content-security-policy');
  let page;
  try {
    await httpOk('PUT', POLICY, JSON.stringify(policy.replace("connect-src 'self'", `connect-src 'self' ${left.address}/ ${right.address}/`)));
    for (const [each, count] of [[left, 2], [right, 3]]) {
      for (const name of [same, other]) await send(each.address, 'PUT', name, {});
      await send(each.address, 'POST', `${same}/_bulk_docs`, { docs: [{}] });
      await send(each.address, 'POST', `${other}/_bulk_docs`, { docs: Array.from({ length: count }, () => ({})) });
    }
    await send(left.address, 'PUT', missing, {});
    for (const name of [same, other]) await httpOk('PUT', name, {});
    page = await openPage(browser, { start: '#/servers' });
    const states = page.getByRole('region', { name: 'State of the servers' });
    const state = (name) => states.getByRole('row', { name: new RegExp(name) });
    await page.getByRole('status').getByText('3 servers', { exact: true }).waitFor();
    await state('this console').getByText('up', { exact: true }).waitFor();
    for (const name of names) await state(name).getByText('no login').waitFor();
    assert.deepEqual(await violations(page), []);

    // Each login is for one server. A wrong password is refused in the dialog.
    const login = async (name, password) => {
      await page.getByRole('dialog').getByRole('textbox', { name: 'Name' }).fill(name);
      await page.getByLabel('Password').fill(password);
      await page.getByRole('dialog').getByRole('button', { name: 'Log in' }).click();
    };
    for (const name of names) {
      await state(name).getByRole('button', { name: 'Log in' }).click();
      await page.getByRole('heading', { name: `Log in to ${name}` }).waitFor();
      if (name === names[0]) {
        await login(NAME, 'wrong');
        await page.getByText('Name or password is wrong.').waitFor();
      }
      await login(NAME, PASSWORD);
      await state(name).getByText('up', { exact: true }).waitFor();
    }
    await state(names[0]).getByText(/^Settee .*, as /).waitFor();
    // The system databases have documents of their own.
    await state(names[1]).getByRole('cell').filter({ hasText: /^\d+$/ }).first().waitFor();

    const row = (name) => page.getByRole('table', { name: 'Databases of all servers' }).getByRole('row', { name: new RegExp(`^${name}`) });
    const cells = async (name) => (await row(name).getByRole('cell').allInnerTexts()).map((text) => text.split(' · ')[0]);
    await page.getByLabel('Databases whose names begin with').fill(same);
    await row(same).getByText('1 document').nth(1).waitFor();
    assert.deepEqual(await cells(same), ['0 documents', '1 document', '1 document']);
    await row(same).getByRole('rowheader').getByText('differs').waitFor();
    await page.getByLabel('Databases whose names begin with').fill('');
    await page.getByRole('button', { name: 'Different' }).click();
    await row(other).getByText('3 documents').waitFor();
    assert.deepEqual(await cells(other), ['0 documents', '2 documents', '3 documents']);
    assert.deepEqual(await cells(missing), ['missing', '0 documents', 'missing']);
    assert.deepEqual(await violations(page), []);
    await page.setViewportSize({ width: 360, height: 800 });
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), 0);
    await page.setViewportSize({ width: 1400, height: 900 });

    // A server that does not answer does not hide the others. The page polls it.
    right.stop();
    await state(names[1]).getByText('no answer').waitFor({ timeout: 30_000 });
    await page.getByRole('status').getByText('3 servers, 1 does not answer').waitFor();
    await row(other).getByText('2 documents').waitFor();
    await state(names[0]).getByRole('button', { name: `Log out of ${names[0]}` }).click();
    await state(names[0]).getByText('no login').waitFor();

    // A figure is a link to the database on its server.
    await state(names[0]).getByRole('button', { name: 'Log in' }).click();
    await login(NAME, PASSWORD);
    await row(missing).getByRole('link', { name: '0 documents' }).click();
    await page.getByRole('heading', { name: missing }).waitFor();
    assert.ok(page.url().includes(encodeURIComponent(names[0])), page.url());
    assert.deepEqual(page.problems, []);
  } finally {
    await page?.context().close();
    for (const { stop } of [left, right]) stop();
    await http('DELETE', POLICY);
    for (const name of [same, other]) await http('DELETE', name);
  }
});

/** Starts an S3 server with the requests that backups use. Objects are in memory. While `isClosed` is set, every request is refused. */
function bucket() {
  const objects = new Map();
  const state = { isClosed: false };
  const server = createServer((request, response) => {
    const url = new URL(request.url, 'http://bucket');
    const key = decodeURIComponent(url.pathname.split('/').slice(2).join('/'));
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      const end = (status, body = '', headers = {}) => response.writeHead(status, { etag: '"e"', 'last-modified': new Date().toUTCString(), ...headers }).end(body);
      if (state.isClosed) return end(403, '<Error><Code>AccessDenied</Code><Message>closed</Message></Error>');
      if (request.method === 'PUT') {
        objects.set(key, Buffer.concat(parts));
        return end(200);
      }
      if (url.searchParams.get('list-type') === '2') {
        const prefix = url.searchParams.get('prefix') ?? '';
        const found = [...objects.keys()].filter((name) => name.startsWith(prefix)).sort();
        const contents = found.map((name) => `<Contents><Key>${name}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"e"</ETag><Size>${objects.get(name).length}</Size></Contents>`).join('');
        return end(200, `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>b</Name><Prefix>${prefix}</Prefix><KeyCount>${found.length}</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>${contents}</ListBucketResult>`, { 'content-type': 'application/xml' });
      }
      const object = objects.get(key);
      if (request.method === 'DELETE') return end(objects.delete(key) ? 204 : 204);
      return object === undefined ? end(404, '<Error><Code>NoSuchKey</Code><Message>none</Message></Error>') : end(200, request.method === 'HEAD' ? '' : object, { 'content-length': object.length });
    });
  });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve({ server, objects, state, url: `http://127.0.0.1:${server.address().port}` })));
}

/** Returns an unused port. Another process may take it before the caller does. */
function freePort() {
  const probe = createServer();
  return new Promise((resolve) => probe.listen(0, '127.0.0.1', () => {
    const { port } = probe.address();
    probe.close(() => resolve(port));
  }));
}

test('backups are configured and started, and their state is shown', { timeout: 120_000, skip }, async (t) => {
  const { server, objects, state, url } = await bucket();
  const { address, stop } = await startServer({ port: await freePort() });
  t.after(() => {
    stop();
    server.close();
    server.closeAllConnections();
  });
  const page = await openPage(browser, { base: `${address}/_utils/`, start: '#/backups' });
  await page.getByText('No backups are configured').waitFor();
  await page.getByLabel('Bucket and prefix').fill('s3://b/one');
  await page.getByLabel('Endpoint').fill(url);
  await page.getByLabel('Access key', { exact: true }).fill('id');
  await page.getByLabel('Secret of the access key').fill('secret');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Restart' }).click();

  // The new process writes its first backup immediately.
  const attempts = page.getByRole('region', { name: 'Attempts' });
  await attempts.getByText('written').first().waitFor({ timeout: 40_000 });
  assert.equal([...objects.keys()].filter((name) => name.startsWith('one/backups/')).length, 1);
  await page.getByText('settee restore --from s3://b/one --check').waitFor();
  await page.getByRole('button', { name: 'Back up now' }).click();
  await attempts.getByText('written').nth(1).waitFor({ timeout: 20_000 });
  assert.equal([...objects.keys()].filter((name) => name.startsWith('one/backups/')).length, 2);

  // A failed attempt is listed.
  state.isClosed = true;
  await page.getByRole('button', { name: 'Back up now' }).click();
  await attempts.getByText('failed').waitFor({ timeout: 40_000 });
  await page.context().close();
});
