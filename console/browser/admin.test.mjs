// Pages for administrators of a server.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { NAME, ORIGIN, flows, freshName, http, launch, httpOk, openPage, seed, startServer } from './support.mjs';

let browser;
const db = freshName('admin');

before(async () => {
  browser = await launch();
  for (const name of ['_users', '_replicator']) await http('PUT', name, {});
  await seed(db, 300);
});
after(async () => {
  await browser?.close();
  await http('DELETE', db);
});

const flow = flows(() => browser);

flow('a user is created, changed and deleted', '#/users', async (page) => {
  const name = freshName('user');
  await page.getByRole('button', { name: 'Create user' }).click();
  await page.getByRole('textbox', { name: 'Name', exact: true }).fill(name);
  await page.getByLabel('Password', { exact: true }).fill('secret');
  await page.getByLabel('Roles').fill('sales, reports');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('row', { name: new RegExp(`${name}.*sales.*reports`) }).waitFor();
  await page.getByRole('button', { name: `Actions on ${name}` }).click();
  await page.getByRole('button', { name: 'Roles and password' }).click();
  await page.getByLabel('Roles').fill('reports');
  await page.getByLabel('New password').fill('other');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('row', { name: new RegExp(`${name}.*sales`) }).waitFor({ state: 'detached' });
  const session = await fetch(`${ORIGIN}/_session`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ name, password: 'other' }) });
  assert.deepEqual((await session.json()).roles, ['reports']);
  await page.getByRole('button', { name: `Actions on ${name}` }).click();
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('row', { name: new RegExp(name) }).waitFor({ state: 'detached' });
});

flow('an administrator is added and removed', '#/users', async (page) => {
  await page.getByRole('button', { name: 'Add' }).click();
  await page.getByRole('textbox', { name: 'Name', exact: true }).fill('second');
  await page.getByLabel('Password').fill('pw2');
  await page.getByRole('dialog').getByRole('button', { name: 'Add' }).click();
  await page.getByRole('button', { name: 'Remove second' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('button', { name: 'Remove second' }).waitFor({ state: 'detached' });
  assert.equal((await http('GET', '_node/_local/_config/admins/second')).status, 404);
});

flow('the charts of the last day show the history of the server', '#/dashboard', async (page) => {
  await page.getByRole('button', { name: '24 h' }).click();
  // The first sample is taken when the server starts.
  await page.getByRole('img', { name: /^Memory: Memory [\d.]+ [KMG]?B/ }).waitFor();
  assert.match(page.url(), /window=day/);
});

flow('a replication is stored, inspected and deleted', `#/replication/new?source=${db}`, async (page) => {
  const target = freshName('copy');
  const to = page.locator('.card', { has: page.getByRole('heading', { name: 'To', exact: true }) });
  await to.getByLabel('Database').fill(target);
  await page.getByLabel('Create the target if it is missing').check();
  // Databases of this server are specified by name and need no password.
  assert.equal(await page.locator('input[type="password"]').count(), 0);
  await page.getByLabel('Filter').selectOption('selector');
  await page.locator('[data-editor="Selector"] .cm-content').click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText('{"state": "paid"}');
  await page.getByLabel('Document id').fill(target);
  await page.getByRole('button', { name: 'Replicate' }).click();
  const row = page.getByRole('row', { name: new RegExp(target) });
  await row.getByText('completed').waitFor();
  const { rows } = await httpOk('GET', `${target}/_all_docs?include_docs=true`);
  assert.ok(rows.length > 0 && rows.every(({ doc }) => doc.state === 'paid'));
  const stored = await httpOk('GET', `_replicator/${target}`);
  assert.deepEqual([stored.source, stored.target], [db, target]);
  await page.getByRole('button', { name: `Actions on ${target}` }).click();
  await page.getByRole('button', { name: 'Details' }).click();
  assert.equal((await page.getByRole('dialog').innerText()).includes(':pw@'), false, 'no password is shown');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: `Actions on ${target}` }).click();
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await row.waitFor({ state: 'detached' });
  await http('DELETE', target);
});

flow('a replication with another server is not sent without its password', '#/replication/new', async (page) => {
  const writes = [];
  page.on('request', (request) => { if (!['GET', 'HEAD'].includes(request.method())) writes.push(request.url()); });
  for (const title of ['From', 'To']) {
    const card = page.locator('.card', { has: page.getByRole('heading', { name: title, exact: true }) });
    await card.getByRole('button', { name: 'Another server' }).click();
    await card.getByLabel('URL of the database').fill(`${ORIGIN.replace('//', '//admin@')}/${db}`);
    assert.equal(await card.getByLabel('User').inputValue(), 'admin');
    assert.equal(await card.getByLabel('Password').inputValue(), '');
  }
  await page.getByRole('button', { name: 'Replicate' }).click();
  assert.equal(await page.locator('input:invalid').count(), 2);
  // Without the validation of the browser, the console reports the missing password.
  await page.evaluate(() => { document.querySelector('form').noValidate = true; });
  await page.getByRole('button', { name: 'Replicate' }).click();
  await page.getByRole('alert').getByText('The password of admin is missing.').waitFor();
  assert.deepEqual(writes, []);
});

flow('a failed replication shows its error and can be restarted', '#/replication', async (page) => {
  const id = freshName('broken');
  await httpOk('PUT', `_replicator/${id}`, { source: `${ORIGIN}/none-${id}`, target: `${ORIGIN}/none2-${id}` });
  const row = page.getByRole('row', { name: new RegExp(`none-${id}`) });
  await row.getByText(/crashing|failed|error/).first().waitFor();
  await page.getByRole('button', { name: `Actions on ${id}` }).click();
  await page.getByRole('button', { name: 'Restart' }).click();
  await page.getByText('The replication was restarted.').waitFor();
  const { _rev } = await httpOk('GET', `_replicator/${id}`);
  await http('DELETE', `_replicator/${id}?rev=${_rev}`);
});

flow('a configuration key is found, changed and reset', '#/config', async (page) => {
  await page.getByLabel('Search keys and descriptions').fill('slow_request');
  const item = page.locator('.key-item', { hasText: 'slow_request_ms' });
  await item.getByText('[log]').waitFor();
  await item.locator('input').fill('0');
  await item.getByRole('button', { name: 'Save' }).click();
  await item.getByText('changed').waitFor();
  assert.equal(await httpOk('GET', '_node/_local/_config/log/slow_request_ms'), '0');
  // With a limit of 0 every request is slow.
  await httpOk('GET', `${db}/_design/orders/_view/by_city?limit=1`);
  await page.evaluate(() => { location.hash = '#/slow'; });
  await page.getByRole('row', { name: /by_city/ }).first().waitFor();
  await page.evaluate(() => { location.hash = '#/config?q=slow_request'; });
  await item.getByRole('button', { name: /Reset .* to the default/ }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Reset to the default' }).click();
  await item.getByText('changed').waitFor({ state: 'detached' });
});

flow('CORS is set in a form', '#/config/cors', async (page) => {
  await page.getByLabel('Allow requests from pages of other origins').check();
  await page.getByRole('textbox', { name: 'Origins' }).fill('*');
  await page.getByLabel('With cookies and passwords').check();
  await page.getByText('Every page that a user visits').waitFor();
  await page.getByRole('textbox', { name: 'Origins' }).fill('https://app.test');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('CORS is saved.').waitFor();
  const answer = await fetch(`${ORIGIN}/`, { headers: { origin: 'https://app.test' } });
  assert.equal(answer.headers.get('access-control-allow-origin'), 'https://app.test');
  await page.getByLabel('Allow requests from pages of other origins').uncheck();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.waitForFunction(() => !document.querySelector('button[aria-busy]'));
});

flow('the dashboard, the page of the server and the log show current data', '#/dashboard', async (page) => {
  await page.locator('.plot canvas').first().waitFor();
  await page.getByRole('img', { name: /^Requests a second: Requests (?!no data)/ }).waitFor();
  await page.getByRole('link', { name: 'Server' }).click();
  await page.getByText('The server has an administrator').waitFor();
  await page.getByRole('heading', { name: 'Versions' }).waitFor();
  await page.getByRole('link', { name: 'Logs' }).first().click();
  await page.getByLabel('Lines that contain').fill('/_up');
  await httpOk('GET', '_up');
  await page.locator('.log').getByText('/_up').first().waitFor();
});

flow('a running build is listed, paused and resumed', '#/activity', async (page) => {
  const name = freshName('building');
  // With this budget a background build waits for minutes after its first batch, so the test does not depend on the speed of the machine.
  await httpOk('PUT', '_node/_local/_config/ken/bytes_per_second', '"1"');
  try {
    await httpOk('PUT', name, {});
    await httpOk('POST', `${name}/_bulk_docs`, { docs: Array.from({ length: 3000 }, (_, index) => ({ _id: String(index), n: index })) });
    await httpOk('PUT', `${name}/_design/slow`, { views: { slow: { map: 'function (doc) { emit(doc.n, null); }' } } });
    // No client waits for the index, because builds for waiting clients have no budget.
    await httpOk('POST', `${name}/_design/slow/_build`, { action: 'start' });
    const build = page.locator('.build', { hasText: name });
    await build.getByRole('button', { name: 'Pause' }).click();
    const paused = page.locator('.card', { has: page.getByRole('heading', { name: 'Paused in this session' }) });
    await paused.getByText('paused', { exact: true }).waitFor();
    assert.equal((await httpOk('GET', `${name}/_design/slow/_build`)).status, 'paused');
    await paused.getByRole('button', { name: 'Resume' }).click();
    await paused.waitFor({ state: 'detached' });
    await build.getByRole('button', { name: 'Cancel' }).click();
    await build.waitFor({ state: 'detached' });
    assert.equal((await httpOk('GET', `${name}/_design/slow/_build`)).status, 'resting');
  } finally {
    await http('DELETE', '_node/_local/_config/ken/bytes_per_second');
    await http('DELETE', name);
  }
});

test('initial setup of a server', { timeout: 80_000, skip: !process.env.SETTEE_BINARY }, async () => {
  const { address, stop } = await startServer({ admin: false });
  try {
    const page = await openPage(browser, { user: null, base: `${address}/_utils/` });
    await page.getByText('This server has no administrator').waitFor();
    await page.getByRole('link', { name: 'Set it up' }).click();
    await page.getByRole('textbox', { name: 'Name', exact: true }).fill('first');
    await page.getByLabel('Password', { exact: true }).fill('pw1');
    await page.getByLabel('Password again').fill('pw');
    await page.getByText('The passwords differ.').waitFor();
    await page.getByLabel('Password again').fill('pw1');
    await page.getByLabel('Allow requests from pages of other origins').check();
    await page.getByRole('textbox', { name: 'Origins' }).fill('https://app.test');
    await page.getByRole('button', { name: 'Set up', exact: true }).last().click();
    // The server hashes the password several times, which takes seconds on a loaded machine.
    await page.getByRole('link', { name: '_users' }).waitFor({ timeout: 40_000 });
    await page.getByRole('button', { name: 'Session of first' }).waitFor();
    const cors = await fetch(`${address}/_session`, { headers: { origin: 'https://app.test' } });
    assert.equal(cors.headers.get('access-control-allow-origin'), 'https://app.test');
    assert.equal((await fetch(`${address}/_all_dbs`)).status, 401);
    assert.deepEqual(page.problems, []);
    await page.context().close();
  } finally {
    stop();
  }
});

test('a user without permissions sees the permitted actions', { timeout: 40_000 }, async () => {
  const name = freshName('plain');
  await httpOk('PUT', `_users/org.couchdb.user:${name}`, { name, password: 'secret', roles: [], type: 'user' });
  await httpOk('PUT', `${db}/_security`, { admins: { names: [], roles: [] }, members: { names: [name], roles: [] } });
  const page = await openPage(browser, { user: name, password: 'secret' });
  assert.equal(await page.getByRole('link', { name: 'Configuration' }).count(), 0);
  await page.getByRole('textbox', { name: 'Name', exact: true }).fill(db);
  await page.getByRole('button', { name: 'Open' }).click();
  await page.getByRole('region', { name: 'Documents' }).getByRole('link', { name: 'order-0000000' }).waitFor();
  await page.evaluate((hash) => { location.hash = hash; }, `#/db/${db}/settings`);
  await page.getByText('Figures').waitFor();
  assert.equal(await page.getByText('Delete database').count(), 0);
  await page.evaluate((hash) => { location.hash = hash; }, `#/db/${db}/doc/order-0000001`);
  await page.locator('.cm-content').getByText('order-0000001').waitFor();
  await page.getByRole('button', { name: `Session of ${name}` }).click();
  await page.getByRole('button', { name: 'Your account' }).click();
  await page.getByText('an administrator changes passwords').waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
  assert.notEqual(name, NAME);
});

flow('an administrator views the console as another user', '#/users', async (page) => {
  const [name, role] = [freshName('viewer'), freshName('readers')];
  const [open, shut] = [freshName('open'), freshName('shut')];
  await httpOk('PUT', `_users/org.couchdb.user:${name}`, { name, password: 'secret', roles: [role], type: 'user' });
  for (const each of [open, shut]) await httpOk('PUT', each, {});
  await httpOk('PUT', `${open}/_security`, { admins: { names: [], roles: [] }, members: { names: [], roles: [role] } });
  await httpOk('PUT', `${shut}/_security`, { admins: { names: [], roles: [] }, members: { names: ['nobody-else'], roles: [] } });
  await httpOk('PUT', `${open}/_design/rules`, { validate_doc_update: 'function (doc, old, user) { if (user.name !== doc.by) throw({ forbidden: "by another user" }); }' });
  await page.getByLabel('Users whose names begin with').fill(name);
  await page.getByRole('button', { name: `Actions on ${name}` }).click();
  await page.getByRole('button', { name: 'View as this user' }).click();
  await page.getByText(`This tab sends its requests as ${name}.`).waitFor();
  assert.equal(await page.getByRole('link', { name: 'Configuration' }).count(), 0);
  await page.evaluate((hash) => { location.hash = hash; }, `#/db/${shut}`);
  await page.getByRole('alert').getByText('You are not allowed to access this db.').waitFor();
  // Validation functions are called with the user.
  await page.evaluate((hash) => { location.hash = hash; }, `#/db/${open}/new`);
  await page.locator('.cm-content').getByText('_id').waitFor();
  await page.locator('.cm-content').click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText(JSON.stringify({ _id: 'mine', by: name }));
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: 'mine' }).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByRole('button', { name: `Session of ${NAME}` }).waitFor();
  await page.getByRole('link', { name: 'Configuration' }).waitFor();
  for (const each of [open, shut]) await http('DELETE', each);
});
