// Databases with per-document access: creation, readers of a document, and the view of another user.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { NAME, flows, freshName, http, httpOk, launch, violations } from './support.mjs';

let browser;
const db = freshName('access');
const [reader, other, role] = [freshName('reader'), freshName('other'), freshName('family')];
const PATH = `#/db/${db}`;

before(async () => {
  browser = await launch();
  await http('PUT', '_users', {});
  for (const [name, roles] of [[reader, [role]], [other, []]]) await httpOk('PUT', `_users/org.couchdb.user:${name}`, { name, password: 'pw', roles, type: 'user' });
  await httpOk('PUT', `${db}?access=true`, {});
  await httpOk('PUT', `${db}/_security`, { members: { roles: ['_users'] } });
  await httpOk('PUT', `${db}/shared`, { _access: [role], text: 'of a role' });
  await httpOk('PUT', `${db}/own`, { _access: [reader], text: 'of a user' });
  await httpOk('PUT', `${db}/internal`, { text: 'of administrators' });
});
after(async () => {
  await browser?.close();
  await http('DELETE', db);
});

const flow = flows(() => browser);
const readers = (page) => page.getByRole('form', { name: 'Readers' });
const editor = (page) => page.locator('[data-editor^="JSON of"] .cm-content');

flow('a database with per-document access is created', '#/databases', async (page) => {
  const name = freshName('lists');
  await page.getByRole('button', { name: 'Create database' }).first().click();
  await page.getByRole('textbox', { name: 'Name' }).fill(name);
  await page.getByLabel('Access per document').check();
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByText('No documents yet').waitFor();
  await page.locator('.tag', { hasText: 'access per document' }).waitFor();
  const { access, props } = await httpOk('GET', name);
  assert.deepEqual([access, props.partitioned], [true, undefined]);
  await http('DELETE', name);
});

flow('readers of a document are added and removed, and saved with its text', PATH, async (page) => {
  const id = freshName('doc');
  await httpOk('PUT', `${db}/${id}`, { price: 1 });
  await page.evaluate((hash) => { location.hash = hash; }, `${PATH}/doc/${id}`);
  await readers(page).getByText('Read and edited by administrators only.').waitFor();
  await readers(page).getByLabel('User or role').fill(other);
  await readers(page).getByLabel('User or role').press('Enter');
  await readers(page).getByLabel('User or role').fill('_users');
  await readers(page).getByRole('button', { name: 'Add reader' }).click();
  await readers(page).getByText('all users').waitFor();
  await editor(page).getByText(`"${other}"`).waitFor();
  assert.equal(await page.locator('.cm-lintRange-error').count(), 0, 'the list is not marked as an error');
  assert.deepEqual(await violations(page), []);
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByText('Saved as 2-').waitFor();
  assert.deepEqual((await httpOk('GET', `${db}/${id}`))._access, [other, '_users']);
  for (const name of [other, '_users']) await readers(page).getByRole('button', { name: `Remove ${name}` }).click();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByText('Saved as 3-').waitFor();
  const { _access, price, _rev } = await httpOk('GET', `${db}/${id}`);
  assert.deepEqual([_access, price], [undefined, 1]);
  await http('DELETE', `${db}/${id}?rev=${_rev}`);
});

flow('a new document is created with its readers, and a malformed list is left to the editor', `${PATH}/new`, async (page) => {
  const id = freshName('new');
  await editor(page).getByText('_id').waitFor();
  await editor(page).click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText(JSON.stringify({ _id: id, _access: reader }));
  await page.getByText('_access is a list of names').waitFor();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText(JSON.stringify({ _id: id }));
  await readers(page).getByLabel('User or role').fill(reader);
  await readers(page).getByLabel('User or role').press('Enter');
  await readers(page).getByRole('button', { name: `Remove ${reader}` }).waitFor();
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByRole('heading', { name: id }).waitFor();
  assert.deepEqual((await httpOk('GET', `${db}/${id}`))._access, [reader]);
  await http('DELETE', `${db}/${id}?rev=${(await httpOk('GET', `${db}/${id}`))._rev}`);
});

flow('an administrator sees the database as a user, and the documents of a role', PATH, async (page) => {
  const list = page.getByRole('region', { name: 'Documents' });
  await list.getByRole('link', { name: 'internal' }).waitFor();
  await page.getByRole('button', { name: 'View as' }).click();
  const dialog = page.getByRole('dialog');
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole('link', { name: role }).click();
  await page.getByRole('link', { name: 'shared' }).waitFor();
  assert.equal(await page.getByRole('link', { name: 'own', exact: true }).count(), 0);
  await page.evaluate((hash) => { location.hash = hash; }, PATH);
  await page.getByRole('button', { name: 'View as' }).click();
  await dialog.getByLabel('User').fill(reader);
  await dialog.getByRole('button', { name: 'View', exact: true }).click();
  await page.getByText(`This tab sends its requests as ${reader}.`).waitFor();
  for (const id of ['shared', 'own']) await list.getByRole('link', { name: id }).waitFor();
  assert.equal(await list.getByRole('link', { name: 'internal' }).count(), 0);
  assert.equal(await page.getByRole('button', { name: 'View as' }).count(), 0);
  await page.getByText('2 documents', { exact: false }).first().waitFor();
  // A user edits with the rights of the list.
  await page.evaluate((hash) => { location.hash = hash; }, `${PATH}/doc/own`);
  await readers(page).getByRole('button', { name: `Remove ${reader}` }).click();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByRole('alert').getByText(/access/).first().waitFor();
  await page.getByRole('button', { name: 'Undo all' }).click();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByRole('button', { name: `Session of ${NAME}` }).waitFor();
});
