// The form beside the JSON, edits of many documents, effective permissions, and the list of servers.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { flows, freshName, http, launch, made, seed } from './support.mjs';

let browser;
const db = freshName('edits');

before(async () => {
  browser = await launch();
  await http('PUT', '_users', {});
  await seed(db, 300);
  await made('PUT', `${db}/form`, '{"_id":"form","big":12345678901234567890,"price":1.50,"name":"Sofa","lines":[{"sku":"a"},{"sku":"b"}],"ok":true}');
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
  // The other way: the form follows what is typed as JSON, also past an error.
  await json.getByText('"price"').click();
  await page.keyboard.press('End');
  await page.keyboard.type(' "typed": tru');
  await form.waitFor({ state: 'detached' });
  await page.getByText('The form continues when the JSON is corrected.').waitFor();
  await page.keyboard.type('e,');
  await form.getByLabel('typed', { exact: true }).selectOption('false');
  await json.getByText('"typed": false').waitFor();
  // What is no number does not reach the document.
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
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await form.getByLabel('Type of the new item of tags').waitFor();
  await form.locator('form', { has: page.getByLabel('Type of the new item of tags') }).getByRole('button', { name: 'Add' }).click();
  await form.getByLabel('tags[0]', { exact: true }).fill('red');
  await form.getByRole('button', { name: 'Move lines[0] down' }).click();
  await form.getByRole('button', { name: 'Remove lines[1]' }).click();
  // A draft keeps edits of the form as well.
  await page.reload();
  await page.getByText(/^Restored what you typed/).waitFor();
  assert.equal(await form.getByLabel('tags[0]', { exact: true }).inputValue(), 'red');
  await form.getByLabel('tags[0]', { exact: true }).press('Control+s');
  await page.getByText('Saved as 2-').waitFor();
  const { text } = await http('GET', `${db}/form`);
  assert.ok(text.includes('"big":12345678901234567890') && text.includes('"price":2.50'), text);
  const { name, lines, fine, tags, typed } = JSON.parse(text);
  assert.deepEqual({ name, lines, fine, tags, typed }, { name: 'Couch "two"', lines: [{ sku: 'c' }], fine: 'true', tags: ['red'], typed: false });
});

flow('a new document is made in a form', `#/db/${db}/new?as=form`, async (page) => {
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
