// Hostile names: no page, link or request addresses another object than the named one.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { CONSOLE, flows, freshName, http, launch, httpOk, openPage } from './support.mjs';

let browser;
const db = `${freshName('names')}/a+b$(c)`;
const victim = freshName('payroll');
const enc = encodeURIComponent;
const at = enc(db);
/** Names that need escaping, and names of path traversal to the database `victim`. */
const NAMES = [`../../${victim}`, `../${victim}`, 'a/b', '%2e%2e', '%2F..%2F', 'a?rev=1#x', 'a b+c&d=e', '\\..\\x', 'ü/名前', '//evil.example/x', ';:@', '"<b>\''];

before(async () => {
  browser = await launch();
  for (const name of ['_users', '_replicator']) await http('PUT', name, {});
  await httpOk('PUT', victim, {});
  await httpOk('PUT', `${victim}/kept`, {});
  await httpOk('PUT', at, {});
  for (const name of NAMES) {
    const { rev } = await httpOk('PUT', `${at}/${enc(name)}`, { name });
    await httpOk('PUT', `${at}/${enc(name)}/${enc(name)}?rev=${rev}`, 'contents', { 'content-type': 'text/plain' });
    const map = 'function (doc) { emit(doc._id, 1); }';
    await httpOk('PUT', `${at}/_design/${enc(name)}`, { views: { [name]: { map, reduce: '_count' } }, filters: { [name]: 'function () { return true; }' }, nouveau: { [name]: { index: 'function (doc) { index("string", "a", doc.name); }' } } });
  }
  await httpOk('POST', `${at}/_index`, { index: { fields: ['name'] }, name: NAMES[0], ddoc: NAMES[2] + 'x' });
});
after(async () => {
  await browser?.close();
  for (const name of [at, victim]) await http('DELETE', name);
});

const flow = flows(() => browser);

/** Returns the URL if it belongs neither to the console, nor to this database, nor to an endpoint of the server; otherwise undefined. */
function outside(url) {
  if (url.startsWith('blob:') || url.startsWith('data:')) return undefined;
  const { origin, pathname } = new URL(url);
  if (origin !== new URL(CONSOLE).origin) return url;
  const [, first = ''] = pathname.split('/');
  const isKnown = first === '' || first.startsWith('_') || decodeURIComponent(first) === db;
  const names = pathname.split('/').slice(2).map((part) => decodeURIComponent(part));
  const isOwn = decodeURIComponent(first) !== db || names.every((name) => name === '' || name.startsWith('_') || NAMES.includes(name) || name === `${NAMES[2]}x` || name === 'json');
  return isKnown && isOwn ? undefined : url;
}

test('every link, download and request of every page addresses its own object', { timeout: 240_000 }, async () => {
  const page = await openPage(browser);
  const requests = [];
  page.on('request', (request) => requests.push(request.url()));
  const here = `#/db/${at}`;
  const perName = (name) => [
    `${here}/doc/${enc(name)}`, `${here}/doc/${enc(name)}?tab=attachments`, `${here}/doc/${enc(name)}?tab=revisions`, `${here}/doc/${enc(`_design/${name}`)}`,
    `${here}/design/${enc(name)}?part=${enc(`views/${name}`)}`, `${here}/view/${enc(name)}/${enc(name)}`, `${here}/view/${enc(name)}/${enc(name)}?show=groups`,
    `${here}/search?index=${enc(`${name}/_nouveau/${name}`)}&q=${enc('a:b')}`, `${here}/playground?ddoc=${enc(name)}&name=${enc(name)}`,
  ];
  const addresses = [here, `${here}?view=json`, `${here}/designs`, `${here}/query`, `${here}/changes?live=0`, `${here}/settings`, ...NAMES.flatMap(perName)];
  const wrong = [];
  for (const address of addresses) {
    await page.evaluate((hash) => { location.hash = hash; }, address);
    await page.waitForFunction(() => document.querySelector('#content h1, #content h2, #content .toolbar') && !document.querySelector('.skeleton'));
    const links = await page.evaluate(() => [...document.querySelectorAll('#app [href], #app [src]')].map((node) => node.href || node.src));
    wrong.push(...links.map(outside).filter((url) => url !== undefined).map((url) => `${address}: link ${url}`));
  }
  wrong.push(...requests.map(outside).filter((url) => url !== undefined).map((url) => `request ${url}`));
  assert.deepEqual([...new Set(wrong)], []);
  assert.ok(requests.length > addresses.length, `${requests.length}`);
  await page.context().close();
});

flow('an attachment ../../payroll is previewed, downloaded and deleted, and the database payroll is not changed', `#/db/${at}/doc/${enc(NAMES[0])}?tab=attachments`, async (page) => {
  const name = NAMES[0];
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('dialog').getByText('contents').waitFor();
  await page.keyboard.press('Escape');
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Download' }).click();
  // Chromium adds the extension of the type to a name without one.
  assert.equal((await download).suggestedFilename(), `${victim}.txt`);
  await page.getByRole('button', { name: `Delete ${name}` }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByText('No attachments').waitFor();
  assert.equal((await http('GET', `${victim}/kept`)).status, 200);
  assert.equal((await httpOk('GET', `${at}/${enc(name)}`))._attachments, undefined);
});

flow('a document with a hostile id is saved and deleted', `#/db/${at}/doc/${enc(NAMES[1])}`, async (page) => {
  const id = NAMES[1];
  await page.locator(`[data-editor] .cm-content`).getByText('"_rev"').click();
  await page.keyboard.press('End');
  await page.keyboard.type(' "more": 1,');
  await page.keyboard.press('Control+s');
  await page.getByText('Saved as 3-').waitFor();
  assert.equal((await httpOk('GET', `${at}/${enc(id)}`)).more, 1);
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByText('is deleted.').waitFor();
  assert.deepEqual([(await http('GET', `${at}/${enc(id)}`)).status, (await http('GET', `${victim}/kept`)).status], [404, 200]);
});

test('names without an address are refused without a request', { timeout: 60_000 }, async () => {
  await httpOk('POST', `${at}/_bulk_docs`, { docs: [{ _id: '..' }, { _id: '.' }] });
  const page = await openPage(browser);
  const sent = [];
  page.on('request', (request) => { if (!request.url().includes('/_utils/')) sent.push(`${request.method()} ${new URL(request.url()).pathname}`); });
  for (const [hash, text] of [['doc/..', 'A browser cannot send the name “..”'], ['doc/%2e', 'A browser cannot send the name “.”'], ['doc', 'contains no document id'], ['doc/_security', 'is reserved']]) {
    await page.evaluate((next) => { location.hash = next; }, `#/db/${at}/${hash}`);
    await page.getByRole('alert').getByText(text).waitFor();
  }
  assert.deepEqual(sent.filter((each) => !/^GET \/(?:_session|_all_dbs|_dbs_info)?$/.test(each) && decodeURIComponent(each) !== `GET /${db}`), []);
  assert.equal((await http('GET', at)).status, 200);
  await page.context().close();
});
