// The form of a document, bulk edits, and effective permissions.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { ORIGIN, flows, freshName, http, launch, httpOk, seed } from './support.mjs';

let browser;
const db = freshName('edits');

before(async () => {
  browser = await launch();
  await http('PUT', '_users', {});
  await seed(db, 300);
  await httpOk('PUT', `${db}/form`, '{"_id":"form","big":12345678901234567890,"price":1.50,"name":"Sofa","lines":[{"sku":"a"},{"sku":"b"}],"ok":true}');
});
after(async () => {
  await browser?.close();
  await http('DELETE', db);
});

const flow = flows(() => browser);
const editor = (page, label) => page.locator(`[data-editor="${label}"] .cm-content`);

flow('a form and the JSON edit the same text', `#/db/${db}/doc/form?as=both`, async (page) => {
  const form = page.getByRole('group', { name: 'Fields of the document' });
  const json = editor(page, 'JSON of form');
  await json.getByText('"Sofa"').waitFor();
  await form.getByLabel('name', { exact: true }).fill('Couch "two"');
  await json.getByText('Couch \\"two\\"').waitFor();
  await form.getByLabel('lines[1].sku', { exact: true }).fill('c');
  await json.getByText('"sku": "c"').waitFor();
  // The form follows changes of the JSON, also after a syntax error.
  await json.getByText('"price"').click();
  await page.keyboard.press('End');
  await page.keyboard.type(' "typed": tru');
  await form.waitFor({ state: 'detached' });
  await page.getByText('The form is available when the JSON is corrected.').waitFor();
  await page.keyboard.type('e,');
  await form.getByLabel('typed', { exact: true }).selectOption('false');
  await json.getByText('"typed": false').waitFor();
  // Text that is not a number is not written to the document.
  await form.getByLabel('price', { exact: true }).fill('2.');
  await form.getByText('The document keeps 1.50.').waitFor();
  await form.getByLabel('price', { exact: true }).fill('2.50');
  await json.getByText('2.50').waitFor();
  await form.getByLabel('Type of ok').selectOption('string');
  await form.getByLabel('Name of ok').fill('fine');
  await page.keyboard.press('Enter');
  await json.getByText('"fine": "true"').waitFor();
  await form.getByLabel('Name of a new member', { exact: true }).fill('tags');
  await form.getByLabel('Type of the new member', { exact: true }).selectOption('array');
  await form.locator('form', { has: page.getByLabel('Name of a new member', { exact: true }) }).getByRole('button', { name: 'Add' }).click();
  await form.locator('form', { has: page.getByLabel('Type of the new item of tags') }).getByRole('button', { name: 'Add' }).click();
  await form.getByLabel('tags[0]', { exact: true }).fill('red');
  await form.getByRole('button', { name: 'Move lines[0] down', exact: true }).click();
  await form.getByRole('button', { name: 'Remove lines[1]', exact: true }).click();
  // Edits in the form are stored in the draft.
  await page.reload();
  await page.getByText(/^Restored an unsaved draft/).waitFor();
  assert.equal(await form.getByLabel('tags[0]', { exact: true }).inputValue(), 'red');
  await form.getByLabel('tags[0]', { exact: true }).press('Control+s');
  await page.getByText('Saved as 2-').waitFor();
  const { text } = await http('GET', `${db}/form`);
  assert.ok(text.includes('"big":12345678901234567890') && text.includes('"price":2.50'), text);
  const { name, lines, fine, tags, typed } = JSON.parse(text);
  assert.deepEqual({ name, lines, fine, tags, typed }, { name: 'Couch "two"', lines: [{ sku: 'c' }], fine: 'true', tags: ['red'], typed: false });
});

flow('a saved document is undone', `#/db/${db}/doc/order-0000040`, async (page) => {
  const before = await httpOk('GET', `${db}/order-0000040`);
  await page.locator('.cm-content').getByText(before.customer).dblclick();
  await page.keyboard.press('End');
  await page.keyboard.type('\n"added": 1.50,');
  await page.keyboard.press('Control+s');
  await page.getByText('Saved as 2-').waitFor();
  assert.equal((await httpOk('GET', `${db}/order-0000040`)).added, 1.5);
  await page.getByRole('button', { name: 'Undo', exact: true }).click();
  await page.getByText('The earlier text is saved as 3-').waitFor();
  const { _rev, ...after } = await httpOk('GET', `${db}/order-0000040`);
  assert.deepEqual({ ...after, _rev: before._rev }, before);
  await page.locator('.cm-content').getByText('added').waitFor({ state: 'detached' });
});

flow('a document is created with the form', `#/db/${db}/new?as=form`, async (page) => {
  const form = page.getByRole('group', { name: 'Fields of the document' });
  const id = freshName('made');
  await form.getByLabel('_id', { exact: true }).fill(id);
  await form.getByLabel('Name of a new member').fill('n');
  await form.getByLabel('Type of the new member').selectOption('number');
  await form.getByRole('button', { name: 'Add' }).click();
  await form.getByLabel('n', { exact: true }).fill('0.10');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: id }).waitFor();
  assert.ok((await http('GET', `${db}/${id}`)).text.includes('"n":0.10'));
});

flow('selected documents are edited after a preview, and the edit is undone', `#/db/${db}?q=order-00001`, async (page) => {
  for (const id of ['order-0000100', 'order-0000101', 'order-0000102']) await page.getByLabel(`Select ${id}`).check();
  await page.getByRole('button', { name: 'Edit', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Field').fill('state');
  await dialog.getByLabel('Value').fill('archived');
  await dialog.getByRole('button', { name: 'Preview' }).click();
  await dialog.getByText('3 documents will change, 0 already match.').waitFor();
  await dialog.getByRole('row', { name: /order-0000101/ }).getByText('"archived"').waitFor();
  const before = await httpOk('GET', `${db}/order-0000101`);
  // Another client changes one of the documents between the preview and the edit.
  const theirs = await httpOk('GET', `${db}/order-0000102`);
  await httpOk('PUT', `${db}/order-0000102`, { ...theirs, total: 1 });
  await dialog.getByRole('button', { name: 'Change 3 documents' }).click();
  await dialog.getByText('2 documents saved, 1 refused.').waitFor();
  await dialog.getByRole('row', { name: /order-0000102/ }).getByText('conflict', { exact: true }).waitFor();
  assert.equal((await httpOk('GET', `${db}/order-0000101`)).state, 'archived');
  await dialog.getByRole('button', { name: 'Undo' }).click();
  await page.getByText('2 documents restored.').waitFor();
  const { _rev, ...restored } = await httpOk('GET', `${db}/order-0000101`);
  const { _rev: old, ...expected } = before;
  assert.deepEqual([restored, _rev.split('-')[0], old.split('-')[0]], [expected, '3', '1']);
  assert.equal((await httpOk('GET', `${db}/order-0000102`)).total, 1);
});

flow('all documents that match a query are edited', `#/db/${db}/query?q=${encodeURIComponent('{"selector":{"city":"Oslo"},"fields":["_id","city"],"limit":5}')}`, async (page) => {
  const oslo = (await httpOk('POST', `${db}/_find`, { selector: { city: 'Oslo' }, limit: 1000 })).docs;
  await page.getByText('5 documents', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Edit all' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Rename' }).click();
  await dialog.getByLabel('Field').fill('lines');
  await dialog.getByLabel('New name').fill('items');
  await dialog.getByRole('button', { name: 'Preview' }).click();
  await dialog.getByRole('button', { name: `Change ${oslo.length} documents` }).click();
  await dialog.getByText(`${oslo.length} documents saved.`).waitFor();
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  const renamed = (await httpOk('POST', `${db}/_find`, { selector: { city: 'Oslo' }, limit: 1000 })).docs;
  assert.ok(oslo.length > 20 && renamed.length === oslo.length && renamed.every((doc) => doc.lines === undefined && doc.items.length === 1));
});

flow('the effective permissions of a user are shown for each database', '#/users', async (page) => {
  const name = freshName('viewer');
  await httpOk('PUT', `_users/org.couchdb.user:${name}`, { name, password: 'secret', roles: ['sales'], type: 'user' });
  const security = await httpOk('GET', `${db}/_security`);
  await httpOk('PUT', `${db}/_security`, { admins: { names: [], roles: ['_admin'] }, members: { names: [], roles: ['sales'] } });
  await page.getByLabel('Users whose names begin with').fill(name);
  await page.getByRole('button', { name: `Actions on ${name}` }).click();
  await page.getByRole('button', { name: 'Effective permissions' }).click();
  const dialog = page.getByRole('dialog');
  const row = dialog.getByRole('row').filter({ has: page.getByRole('link', { name: db, exact: true }) });
  await row.getByText('reads and writes', { exact: true }).waitFor();
  await row.getByText('role sales').waitFor();
  await dialog.getByText('Calculated from the permissions of each database').waitFor();
  // The response of the server to requests of the user matches.
  const asUser = (path) => fetch(`${ORIGIN}/${path}`, { headers: { authorization: `Basic ${Buffer.from(`${name}:secret`).toString('base64')}` } });
  assert.equal((await asUser(db)).status, 200);
  await httpOk('PUT', `${db}/_security`, { admins: { names: [], roles: ['_admin'] }, members: { names: ['other'], roles: [] } });
  await dialog.getByRole('button', { name: 'Close' }).click();
  await page.getByRole('button', { name: `Actions on ${name}` }).click();
  await page.getByRole('button', { name: 'Effective permissions' }).click();
  await row.getByText('nothing', { exact: true }).waitFor();
  assert.equal((await asUser(db)).status, 403);
  await httpOk('PUT', `${db}/_security`, security);
});
