// Addresses of Fauxton are translated to the corresponding pages.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { CONSOLE, freshName, http, launch, openPage, seed } from './support.mjs';

let browser;
const db = freshName('addresses');

before(async () => {
  browser = await launch();
  await http('PUT', '_replicator', {});
  await seed(db, 20);
});
after(async () => {
  await browser?.close();
  await http('DELETE', db);
});

const at = `#/db/${db}`;
const old = `#/database/${db}`;

/** All routes of Fauxton 1.3.6, except that of the logout, and the corresponding addresses of this console. */
const ADDRESSES = [
  ['#/', '#/'],
  ['#/index.html', '#/databases'],
  ['#/_all_dbs', '#/databases'],
  ['#/_all_dbs?page=2&limit=20', '#/databases'],
  ['#/login', '#/login'],
  ['#/login?urlback=database', '#/login'],
  ['#/activetasks', '#/activity'],
  ['#/activetasks/replication', '#/activity'],
  ['#/_config', '#/config'],
  ['#/_config/nonode@nohost', '#/config'],
  ['#/_config/nonode@nohost/cors', '#/config/cors'],
  ['#/cluster/disabled', '#/server'],
  ['#/documentation', '#/server'],
  ['#/news', '#/server'],
  ['#/verifyinstall', '#/server'],
  ['#/changePassword', '#/account'],
  ['#/changePassword/nonode@nohost', '#/account'],
  ['#/createAdmin', '#/users'],
  ['#/createAdmin/nonode@nohost', '#/users'],
  ['#/addAdmin', '#/users'],
  ['#/addAdmin/nonode@nohost', '#/users'],
  ['#/setup', '#/setup'],
  ['#/setup/finish', '#/setup'],
  ['#/setup/singlenode', '#/setup'],
  ['#/setup/multinode', '#/setup'],
  ['#/replication', '#/replication'],
  ['#/replication/_create', '#/replication/new'],
  [`#/replication/_create/${db}`, `#/replication/new?source=${db}`],
  ['#/replication/id/nightly', '#/db/_replicator/doc/nightly'],
  ['#/replication/_replicate', '#/replication?show=jobs'],
  [old, at],
  [`${old}/_all_docs`, at],
  [`${old}/_all_docs?descending=true`, `${at}?order=down`],
  [`${old}/_partition/x/_all_docs`, `${at}?partition=x`],
  [`#/partition/${db}/x/_all_docs`, `${at}?partition=x`],
  [`${old}/_new`, `${at}/new`],
  [`${old}/_new?partitionKey=x`, `${at}/new?partition=x`],
  [`${old}/exact`, `${at}/doc/exact`],
  [`${old}/exact/code_editor`, `${at}/doc/exact`],
  [`${old}/a%2Fb%20c`, `${at}/doc/a%2Fb%20c`],
  [`${old}/torn/conflicts`, `${at}/doc/torn?tab=conflicts`],
  [`${old}/_local/mine`, `${at}/doc/_local%2Fmine`],
  [`${old}/_design/orders`, `${at}/doc/_design%2Forders`],
  [`${old}/_design%2Forders`, `${at}/doc/_design%2Forders`],
  [`${old}/_design/orders/conflicts`, `${at}/doc/_design%2Forders?tab=conflicts`],
  [`${old}/_design/orders/_info`, `${at}/design/orders`],
  [`${old}/_partition/x/_design/orders/_info`, `${at}/design/orders?partition=x`],
  [`${old}/_changes`, `${at}/changes`],
  [`${old}/_partition/x/_changes`, `${at}/changes?partition=x`],
  [`${old}/permissions`, `${at}/settings`],
  [`${old}/_partition/x/permissions`, `${at}/settings?partition=x`],
  [`${old}/_find`, `${at}/query`],
  [`${old}/_partition/x/_find`, `${at}/query?partition=x`],
  [`${old}/_index`, `${at}/query?do=index`],
  [`${old}/_partition/x/_index`, `${at}/query?do=index&partition=x`],
  [`${old}/new_view`, `${at}/designs?do=create&kind=views`],
  [`${old}/_partition/x/new_view`, `${at}/designs?do=create&kind=views&partition=x`],
  [`${old}/new_view/orders`, `${at}/design/orders?part=new&kind=views`],
  [`${old}/_partition/x/new_view/orders`, `${at}/design/orders?part=new&kind=views&partition=x`],
  [`${old}/_design/orders/_view/by_city`, `${at}/view/orders/by_city`],
  [`${old}/_design/orders/_view/by_city?startkey=%22a%22`, `${at}/view/orders/by_city?start=%22a%22`],
  [`${old}/_partition/x/_design/orders/_view/by_city`, `${at}/view/orders/by_city?partition=x`],
  [`${old}/_design/orders/_view/by_city/edit`, `${at}/design/orders?part=views%2Fby_city`],
  [`${old}/_partition/x/_design/orders/_view/by_city/edit`, `${at}/design/orders?part=views%2Fby_city&partition=x`],
  [`${old}/new_search`, `${at}/designs?do=create&kind=nouveau`],
  [`${old}/_partition/x/new_search`, `${at}/designs?do=create&kind=nouveau&partition=x`],
  [`${old}/new_search/orders`, `${at}/design/orders?part=new&kind=nouveau`],
  [`${old}/_partition/x/new_search/orders`, `${at}/design/orders?part=new&kind=nouveau&partition=x`],
  [`${old}/_design/orders/_search/orders`, `${at}/search?index=orders%2F_search%2Forders`],
  [`${old}/_design/orders/_indexes/orders?q=a`, `${at}/search?index=orders%2F_search%2Forders&q=a`],
  [`${old}/_partition/x/_design/orders/_search/orders`, `${at}/search?index=orders%2F_search%2Forders&partition=x`],
  [`${old}/_partition/x/_design/orders/_indexes/orders`, `${at}/search?index=orders%2F_search%2Forders&partition=x`],
  [`${old}/_design/orders/_nouveau/orders`, `${at}/search?index=orders%2F_nouveau%2Forders`],
  [`${old}/_design/orders/_search/orders/edit`, `${at}/design/orders?part=indexes%2Forders`],
  [`${old}/_partition/x/_design/orders/_search/orders/edit`, `${at}/design/orders?part=indexes%2Forders&partition=x`],
];

test('every address of Fauxton is translated to its page', { timeout: 80_000 }, async () => {
  const page = await openPage(browser, { start: '#/databases' });
  await page.getByRole('table').waitFor();
  const found = await page.evaluate(async (addresses) => {
    const all = [];
    for (const address of addresses) {
      const changed = new Promise((resolve) => addEventListener('hashchange', resolve, { once: true }));
      location.hash = address;
      await changed;
      const at = location.hash;
      await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      all.push([address, at, document.title]);
    }
    return all;
  }, ADDRESSES.map(([address]) => address));
  const isExpected = (actual, expected) => actual === expected || ((expected.startsWith(at) || expected === '#/login') && actual.startsWith(expected));
  assert.deepEqual(found.filter(([, actual, title], index) => !isExpected(actual, ADDRESSES[index][1]) || title.startsWith('Not found')), []);
  await page.context().close();
});

test('the address of the logout of Fauxton ends the session', { timeout: 40_000 }, async () => {
  const page = await openPage(browser, { start: '#/databases' });
  await page.getByRole('table').waitFor();
  await page.evaluate(() => { location.hash = '#/logout'; });
  await page.getByRole('heading', { name: 'Log in' }).waitFor();
  await page.waitForURL(/#\/login$/);
  const session = await page.context().request.get(new URL('../_session', CONSOLE).href);
  assert.equal((await session.json()).userCtx.name, null);
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

test('an address of Fauxton is replaced in the history', { timeout: 40_000 }, async () => {
  const page = await openPage(browser, { start: `${old}/_design/orders/_view/by_city` });
  await page.getByRole('heading', { name: 'orders/by_city' }).waitFor();
  assert.ok(page.url().endsWith(`${at}/view/orders/by_city`), page.url());
  await page.evaluate((hash) => { location.hash = hash; }, `${old}/torn/conflicts`);
  await page.locator('.diff').waitFor();
  await page.goBack();
  await page.getByRole('heading', { name: 'orders/by_city' }).waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
});
