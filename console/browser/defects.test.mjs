// Regression tests of defects that users found.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { flows, freshName, http, launch, httpOk, openPage, orders, seed } from './support.mjs';

let browser;
const db = freshName('defects');

before(async () => {
  browser = await launch();
  await http('PUT', '_users', {});
  await seed(db, 120);
});
after(async () => {
  await browser?.close();
  await http('DELETE', db);
});

const flow = flows(() => browser);
const goTo = (page, hash) => page.evaluate((next) => { location.hash = next; }, hash);

flow('the page of a deleted document is left, and Back does not reopen the dialog', `#/db/${db}`, async (page) => {
  await page.getByRole('region', { name: 'Documents' }).getByRole('link', { name: 'order-0000003' }).click();
  await page.getByRole('heading', { name: 'order-0000003' }).waitFor();
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('heading', { name: db }).waitFor();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  assert.ok(page.url().endsWith(`#/db/${db}`), page.url());
  await page.goBack();
  await page.getByText('This document is deleted').waitFor();
  assert.equal(await page.getByRole('dialog').count(), 0);
});

flow('dialogs add no entry to the history', '#/server', async (page) => {
  await page.getByRole('heading', { name: 'This node' }).waitFor();
  await goTo(page, '#/databases');
  await page.getByRole('button', { name: 'Create database' }).click();
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.goBack();
  await page.getByRole('heading', { name: 'This node' }).waitFor();
  await page.goForward();
  await page.getByRole('table').waitFor();
  assert.equal(await page.getByRole('dialog').count(), 0);
});

flow('the log follows its end, and stops following when the user scrolls up', '#/logs?level=debug', async (page) => {
  const atEnd = () => page.waitForFunction(() => { const log = document.querySelector('.log'); return log && log.scrollHeight > log.clientHeight && log.scrollHeight - log.scrollTop - log.clientHeight < 2; });
  await page.locator('.log div').first().waitFor();
  await atEnd();
  const mark = freshName('seen');
  await http('GET', mark);
  await page.locator('.log').getByText(mark).first().waitFor();
  await atEnd();
  await page.locator('.log').evaluate((log) => { log.scrollTop = 0; });
  await page.getByRole('button', { name: 'To the end' }).click();
  await atEnd();
});

flow('the plan of a query is in one row or in one column', `#/db/${db}/query?show=plan&q=${encodeURIComponent('{"selector":{"city":"Oslo"}}')}`, async (page) => {
  await page.locator('.plan-step').last().waitFor();
  for (const width of [1400, 1000, 400]) {
    await page.setViewportSize({ width, height: 900 });
    const boxes = await page.locator('.plan-step').evaluateAll((all) => all.map((each) => { const { left, top } = each.getBoundingClientRect(); return [Math.round(left), Math.round(top)]; }));
    assert.equal(boxes.length, 4);
    assert.ok(new Set(boxes.map(([left]) => left)).size === 1 || new Set(boxes.map(([, top]) => top)).size === 1, `${width}: ${JSON.stringify(boxes)}`);
  }
});

flow('without replications the dashboard shows no replication lag', '#/dashboard', async (page) => {
  const stat = page.locator('.stat', { hasText: 'Replication lag' });
  await stat.waitFor();
  assert.ok(!/replication/.test((await stat.locator('dd').first().innerText()).toLowerCase()));
});

flow('the browser tab has the title of the page', '#/databases', async (page) => {
  for (const [hash, title] of [
    ['#/users', 'Users'], [`#/db/${db}`, db], ['#/config', 'Configuration'], ['#/config/cors', 'CORS'], [`#/db/${db}/doc/exact`, 'exact'], ['#/replication/new', 'New replication'], [`#/db/${db}/designs`, `Views of ${db}`],
    ['#/server', 'Server'], ['#/nothing', 'Not found'], ['#/login', 'Log in'], ['#/databases', 'Databases'],
  ]) {
    await goTo(page, hash);
    await page.waitForFunction((expected) => document.title === `${expected} – Settee`, title);
  }
});

test('all tabs are visible on a phone', { timeout: 40_000 }, async () => {
  const page = await openPage(browser, { width: 400, height: 800, start: `#/db/${db}` });
  const tabs = page.getByRole('navigation', { name: 'Parts of the database' }).getByRole('link');
  await tabs.first().waitFor();
  for (const tab of await tabs.all()) {
    const { x, width } = await tab.boundingBox();
    assert.ok(x >= 0 && x + width <= 400, await tab.innerText());
  }
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

flow('counts of one are in the singular', '#/databases', async (page) => {
  const name = freshName('single');
  await httpOk('PUT', name, {});
  try {
    await httpOk('PUT', `${name}/only`, { n: 1 });
    await goTo(page, `#/db/${name}`);
    await page.locator('.list-foot').getByText('1 document,').waitFor();
    await page.locator('.page-head').getByText('1 document ·').waitFor();
    await goTo(page, `#/databases?q=${name}`);
    await page.getByText('1 database match', { exact: false }).waitFor();
    assert.equal(await page.getByText(/\b1 (?:documents|rows|databases|groups|changes|errors)\b/).count(), 0);
  } finally {
    await http('DELETE', name);
  }
});

flow('code in messages is rendered as code', '#/databases', async (page) => {
  const name = freshName('empty');
  await httpOk('PUT', name, {});
  await goTo(page, `#/db/${name}/search`);
  await page.locator('.empty code', { hasText: 'nouveau' }).waitFor();
  assert.ok(!(await page.locator('#content').innerText()).includes('`'));
  await http('DELETE', name);
});

flow('a name that is in use is reported', '#/users', async (page) => {
  const name = freshName('taken');
  await httpOk('PUT', `_users/org.couchdb.user:${name}`, { name, password: 'secret', roles: ['sales'], type: 'user' });
  await page.getByRole('button', { name: 'Create user' }).click();
  await page.getByRole('textbox', { name: 'Name', exact: true }).fill(name);
  await page.getByLabel('Password', { exact: true }).fill('other');
  // Roles of other users are suggested.
  await page.getByRole('group', { name: 'Suggested by other users' }).getByRole('button', { name: 'sales' }).click();
  assert.equal(await page.getByLabel('Roles', { exact: true }).inputValue(), 'sales');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('alert').getByText(`The user ${name} exists already. Choose another name.`).waitFor();
  await goTo(page, `#/db/${db}/designs?do=create`);
  await page.getByLabel('Name').fill('orders');
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByRole('alert').getByText('The design document orders exists already.').waitFor();
  const { _rev } = await httpOk('GET', `_users/org.couchdb.user:${name}`);
  await http('DELETE', `_users/org.couchdb.user:${name}?rev=${_rev}`);
});

test('many databases are counted, sorted by size and scrolled', { timeout: 120_000 }, async () => {
  const prefix = freshName('many');
  const names = Array.from({ length: 260 }, (_, index) => `${prefix}-${String(index).padStart(3, '0')}`);
  const batches = Array.from({ length: 10 }, (_, batch) => names.filter((_name, index) => index % 10 === batch));
  await Promise.all(batches.map(async (batch) => { for (const name of batch) await httpOk('PUT', name, {}); }));
  await httpOk('POST', `${names[255]}/_bulk_docs`, { docs: orders(500) });
  await httpOk('POST', `${names[7]}/_bulk_docs`, { docs: orders(50) });
  const page = await openPage(browser, { start: `#/databases?q=${prefix}` });
  const link = (index) => page.getByRole('link', { name: names[index], exact: true });
  await page.getByRole('status').getByText('260 databases match').waitFor();
  await link(0).waitFor();
  assert.equal(await link(259).count(), 0);
  while ((await link(259).count()) === 0) {
    const count = await page.locator('tbody tr').count();
    await page.locator('.sentinel').scrollIntoViewIfNeeded();
    await page.waitForFunction((before) => document.querySelectorAll('tbody tr').length > before, count);
  }
  await page.getByRole('button', { name: 'On disk' }).click();
  await page.getByRole('columnheader', { name: 'On disk' }).and(page.locator('[aria-sort="descending"]')).waitFor();
  await page.waitForFunction(([first, second]) => { const rows = [...document.querySelectorAll('tbody tr')].map((row) => row.cells[0].innerText); return rows[0] === first && rows[1] === second; }, [names[255], names[7]]);
  await page.waitForURL(/sort=disk/);
  await page.reload();
  await page.waitForFunction((first) => document.querySelector('tbody tr td')?.innerText === first, names[255]);
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await Promise.all(batches.map(async (batch) => { for (const name of batch) await http('DELETE', name); }));
});

flow('fields suggest values of the server', `#/db/${db}/changes`, async (page) => {
  await page.locator('datalist option[value="orders/paid"]').waitFor({ state: 'attached' });
  await goTo(page, `#/replication/new?source=${db}`);
  await page.getByLabel('Filter').selectOption('function');
  await page.locator('datalist option[value="orders/paid"]').waitFor({ state: 'attached' });
  await goTo(page, '#/config?q=password_scheme');
  await page.locator('datalist option[value="pbkdf2"]').waitFor({ state: 'attached' });
  const [name, role] = [freshName('member'), freshName('role')];
  await http('PUT', '_users', {});
  const { rev } = await httpOk('PUT', `_users/org.couchdb.user:${name}`, { name, password: 'secret', roles: [role], type: 'user' });
  await goTo(page, `#/db/${db}/settings`);
  for (const choice of [name, role]) await page.locator(`datalist option[value="${choice}"]`).first().waitFor({ state: 'attached' });
  await http('DELETE', `_users/org.couchdb.user:${name}?rev=${rev}`);
});

flow('secrets of the configuration are not shown', '#/config?section=chttpd_auth', async (page) => {
  const { secret } = await httpOk('GET', '_node/_local/_config/chttpd_auth');
  await page.locator('.key-item', { hasText: 'secret' }).first().waitFor();
  if (secret) assert.ok(!(await page.content()).includes(secret));
  for (const field of await page.locator('.key-item').filter({ has: page.locator('.name', { hasText: /^secret$/ }) }).locator('input').all()) assert.equal(await field.getAttribute('type'), 'password');
});

flow('the charts of the dashboard continue after another page', '#/dashboard', async (page) => {
  await page.getByRole('img', { name: /^Requests a second: Requests (?!no data)/ }).waitFor();
  await page.getByRole('link', { name: 'Server' }).click();
  await page.getByRole('heading', { name: 'This node' }).waitFor();
  await page.goBack();
  // A rate needs two samples, so the chart shows one immediately only if the samples before the navigation are kept.
  await page.getByRole('img', { name: /^Requests a second: Requests (?!no data)/ }).waitFor({ timeout: 1900 });
});

flow('a view whose map function throws shows a notice', '#/databases', async (page) => {
  const name = freshName('throws');
  await httpOk('PUT', name, {});
  try {
    await httpOk('POST', `${name}/_bulk_docs`, { docs: [{ _id: 'a', n: { m: 1 } }, { _id: 'b' }] });
    await httpOk('PUT', `${name}/_design/d`, { views: { v: { map: 'function (doc) { emit(doc.n.m, null); }' }, sound: { map: 'function (doc) { emit(doc._id, null); }' } } });
    await goTo(page, `#/db/${name}/view/d/v`);
    await page.getByText('The map function throws for 1 of 2 sampled documents.').waitFor();
    await page.locator('.notice').getByRole('link', { name: 'b', exact: true }).waitFor();
    await goTo(page, `#/db/${name}/view/d/sound`);
    await page.getByRole('region', { name: 'Rows of the view' }).getByRole('link', { name: 'b', exact: true }).waitFor();
    assert.equal(await page.getByText('The map function throws').count(), 0);
  } finally {
    await http('DELETE', name);
  }
});

flow('the order control shows its state', `#/db/${db}/view/orders/by_city`, async (page) => {
  const rows = page.getByRole('region', { name: 'Rows of the view' });
  await rows.getByText('"Berlin"').first().waitFor();
  const order = page.getByRole('group', { name: 'Order of keys' });
  assert.equal(await order.getByRole('button', { name: 'Ascending' }).getAttribute('aria-pressed'), 'true');
  await order.getByRole('button', { name: 'Descending' }).click();
  await rows.getByText('"Tunis"').first().waitFor();
  assert.equal(await order.getByRole('button', { name: 'Descending' }).getAttribute('aria-pressed'), 'true');
});
