// Indexes, stored queries and partitions.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { flows, freshName, http, launch, httpOk, seed } from './support.mjs';

let browser;
const db = freshName('mango');
const partitioned = freshName('partitioned');

before(async () => {
  browser = await launch();
  await seed(db, 200);
  await httpOk('PUT', `${partitioned}?partitioned=true`, {});
  await httpOk('POST', `${partitioned}/_bulk_docs`, { docs: ['north', 'south'].flatMap((part) => Array.from({ length: 5 }, (_, index) => ({ _id: `${part}:${index}`, part, n: index, words: `a ${part}ern sofa` }))) });
  await httpOk('PUT', `${partitioned}/_design/d`, { views: { by_n: { map: 'function (doc) { emit(doc.n, doc.part); }' } }, nouveau: { words: { index: "function (doc) { index('text', 'default', doc.words, {store: true}); }" } } });
});
after(async () => {
  await browser?.close();
  await http('DELETE', db);
  await http('DELETE', partitioned);
});

const flow = flows(() => browser);
const goTo = (page, hash) => page.evaluate((next) => { location.hash = next; }, hash);
const editor = (page, label) => page.locator(`[data-editor="${label}"] .cm-content`);

async function retype(page, label, text) {
  await editor(page, label).click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText(text);
}

flow('a partial JSON index is defined by its JSON', `#/db/${db}/query`, async (page) => {
  await page.getByRole('button', { name: 'New index' }).click();
  await page.getByLabel('Start from').selectOption('partial');
  await editor(page, 'Definition of the index').getByText('partial_filter_selector').waitFor();
  await retype(page, 'Definition of the index', '{"index": {"fields": ["city", "total"], "partial_filter_selector": {"total": {"$gt": 12.50}}}, "ddoc": "by-hand", "name": "large"}');
  await page.getByRole('dialog').getByRole('button', { name: 'Create index' }).click();
  await page.getByText('The index large is created.').waitFor();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.getByRole('listitem').filter({ hasText: 'city, total' }).getByText('partial').waitFor();
  const { indexes } = await httpOk('GET', `${db}/_index`);
  const found = indexes.find(({ name }) => name === 'large');
  assert.deepEqual([found.ddoc, found.def.fields, found.def.partial_filter_selector], ['_design/by-hand', [{ city: 'asc' }, { total: 'asc' }], { total: { $gt: 12.5 } }]);
});

flow('a text index is defined by its JSON, and an error of the server is shown', `#/db/${db}/query?do=index`, async (page) => {
  await page.getByLabel('Start from').selectOption('text');
  await editor(page, 'Definition of the index').getByText('"title"').waitFor();
  await retype(page, 'Definition of the index', '{"index": {"fields": "city"}, "type": "text"}');
  await page.getByRole('dialog').getByRole('button', { name: 'Create index' }).click();
  await page.getByRole('dialog').getByRole('alert').waitFor();
  await retype(page, 'Definition of the index', '{"index": {"fields": [{"name": "city", "type": "string"}]}, "ddoc": "texts", "name": "cities", "type": "text"}');
  await page.getByRole('dialog').getByRole('button', { name: 'Create index' }).click();
  await page.getByText('The index cities is created.').waitFor();
  await page.getByRole('listitem').filter({ hasText: 'cities' }).getByText('text', { exact: true }).waitFor();
});

flow('queries are recent, saved and started from templates', `#/db/${db}/query`, async (page) => {
  const list = (name) => page.getByRole('region', { name, exact: true });
  await page.getByRole('button', { name: 'Queries' }).click();
  await list('Templates').getByRole('button', { name: /One of several values/ }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await editor(page, 'Mango query').getByText('"paid"').waitFor();
  await page.getByRole('button', { name: 'Find' }).click();
  await page.getByText('25 documents').waitFor();
  await page.getByRole('button', { name: 'Queries' }).click();
  await list('Recent').getByText('$in').waitFor();
  await page.getByLabel('Save the query in the editor as').fill('my states');
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
  await list('Saved').getByText('my states').waitFor();
  await page.keyboard.press('Escape');
  await retype(page, 'Mango query', '{"selector": {"city": "Rome"}}');
  // Saved queries survive a reload.
  await page.reload();
  await page.getByRole('button', { name: 'Queries' }).click();
  await list('Saved').getByRole('button', { name: /^my states/ }).click();
  await editor(page, 'Mango query').getByText('"paid"').waitFor();
  await page.getByRole('button', { name: 'Queries' }).click();
  await list('Saved').getByRole('button', { name: 'Remove my states' }).click();
  await list('Saved').getByText('my states').waitFor({ state: 'detached' });
});

flow('a partition is chosen for documents, views, queries and searches', `#/db/${partitioned}`, async (page) => {
  const documents = page.getByRole('region', { name: 'Documents' });
  await documents.getByRole('link', { name: 'south:0' }).waitFor();
  await page.locator('datalist option[value="south"]').waitFor({ state: 'attached' });
  await page.getByLabel('Partition').fill('north');
  await documents.getByRole('link', { name: 'south:0' }).waitFor({ state: 'detached' });
  await documents.getByRole('link', { name: 'north:0' }).waitFor();
  await page.getByText('5 documents, ').waitFor();
  await page.waitForURL(/partition=north/);
  await goTo(page, `#/db/${partitioned}/view/d/by_n`);
  await page.getByText('Choose a partition').waitFor();
  await page.getByLabel('Partition').fill('south');
  const rows = page.getByRole('region', { name: 'Rows of the view' });
  await rows.getByRole('link', { name: 'south:4' }).waitFor();
  assert.equal(await rows.getByRole('link', { name: 'north:4' }).count(), 0);
  await goTo(page, `#/db/${partitioned}/query?partition=north&q=${encodeURIComponent('{"selector":{"n":{"$gt":2}}}')}`);
  await page.getByText('2 documents', { exact: true }).waitFor();
  await goTo(page, `#/db/${partitioned}/search?partition=south&q=sofa`);
  await page.getByRole('link', { name: 'south:1', exact: true }).waitFor();
  assert.equal(await page.getByRole('link', { name: 'north:1', exact: true }).count(), 0);
});

flow('a search index is created, analyzed, saved and queried', `#/db/${db}/designs`, async (page) => {
  await page.getByRole('button', { name: 'New design document' }).click();
  await page.getByLabel('Name').fill('texts-by-hand');
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByLabel('Kind').selectOption('nouveau');
  await page.getByLabel('Name').fill('cities');
  await page.getByRole('button', { name: 'Add' }).click();
  await editor(page, 'Index function of cities').getByText('doc.title').first().waitFor();
  await retype(page, 'Index function of cities', "function (doc) { if (doc.city) { index('text', 'default', doc.city + ' harbours', {store: true}); index('string', 'state', doc.state); } }");
  await page.getByLabel('Default analyzer').fill('english');
  await page.getByLabel('Analyzers by field').fill('state: keyword');
  await page.getByLabel('Text to analyze').fill('Running harbours');
  await page.getByRole('status', { name: 'Terms' }).getByText('harbour', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByText('nouveau/cities is saved.').waitFor();
  const { nouveau } = await httpOk('GET', `${db}/_design/texts-by-hand`);
  assert.deepEqual([nouveau.cities.default_analyzer, nouveau.cities.field_analyzers], ['english', { state: 'keyword' }]);
  await page.getByLabel('Lucene query').fill('lima AND harbour AND state:sent');
  await page.getByRole('button', { name: 'Search', exact: true }).click();
  await page.getByText(/^\d+ hits?\./).waitFor();
  await page.getByRole('link', { name: /^order-/ }).first().waitFor();
  await page.getByRole('link', { name: 'Open the search page' }).click();
  await page.getByRole('link', { name: 'Edit index' }).waitFor();
  await page.getByText(/^\d+ documents?$/).waitFor();
});

flow('an index of the older search keeps its analyzers per field', '#/databases', async (page) => {
  await httpOk('PUT', `${db}/_design/older`, { indexes: { words: { analyzer: { name: 'perfield', default: 'english', fields: { shelf: 'keyword' } }, index: "function (doc) { if (doc.city) index('default', doc.city, {store: true}); }", extra: 1.50 } } });
  await goTo(page, `#/db/${db}/design/older?part=indexes%2Fwords`);
  assert.equal(await page.getByLabel('Analyzers by field').inputValue(), 'shelf: keyword');
  await page.getByLabel('Default analyzer').fill('standard');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByText('indexes/words is saved.').waitFor();
  const { indexes } = await httpOk('GET', `${db}/_design/older`);
  assert.deepEqual(indexes.words.analyzer, { name: 'perfield', default: 'standard', fields: { shelf: 'keyword' } });
  await page.getByLabel('Lucene query').fill('oslo');
  await page.getByRole('button', { name: 'Search', exact: true }).click();
  await page.getByText(/^\d+ hits?\./).waitFor();
});

flow('a long string is edited as text', '#/databases', async (page) => {
  await httpOk('PUT', `${db}/long`, '{"_id":"long","big":12345678901234567890,"lines":[{"text":"first\\nsecond \\"quoted\\""}],"short":"x"}');
  await goTo(page, `#/db/${db}/doc/long`);
  await editor(page, 'JSON of long').getByText('quoted').waitFor();
  await page.getByRole('button', { name: 'Edit a string' }).click();
  const text = page.getByLabel('Text of lines[0].text');
  assert.equal(await text.inputValue(), 'first\nsecond "quoted"');
  await text.fill('one\n"two"\nthree');
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.keyboard.press('Control+s');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved as 2-').waitFor();
  const { text: stored } = await http('GET', `${db}/long`);
  assert.ok(stored.includes('"one\\n\\"two\\"\\nthree"') && stored.includes('12345678901234567890'), stored);
});

flow('conditions are added to a query', `#/db/${db}/query`, async (page) => {
  const form = page.getByRole('form', { name: 'Add a condition' });
  await page.locator('datalist option[value="city"]').first().waitFor({ state: 'attached' });
  for (const [field, condition, value] of [['city', '$eq', 'Oslo'], ['total', '$gt', '100.50']]) {
    await form.getByLabel('Field').fill(field);
    await form.getByLabel('Condition').selectOption(condition);
    await form.getByLabel('Value').fill(value);
    await form.getByRole('button', { name: 'Add' }).click();
  }
  await editor(page, 'Mango query').getByText('100.50').waitFor();
  await page.getByRole('button', { name: 'Find' }).click();
  await page.getByText(/^\d+ documents$/).waitFor();
  const query = JSON.parse(new URL(page.url().replace('#/', '')).searchParams.get('q'));
  assert.deepEqual(query.selector, { city: { $eq: 'Oslo' }, total: { $gt: 100.5 } });
});

flow('conditions are removed, and the order and the size of a page are chosen', `#/db/${db}/query`, async (page) => {
  const query = JSON.stringify({ selector: { city: 'Oslo', total: { $gt: 100, $lt: 900 } } });
  await goTo(page, `#/db/${db}/query?q=${encodeURIComponent(query)}`);
  const conditions = page.getByRole('list', { name: 'Conditions' });
  await conditions.getByText('city equals "Oslo"').waitFor();
  await conditions.getByText('total greater than 100').waitFor();
  await page.getByRole('button', { name: 'Remove the condition on city' }).click();
  await page.getByRole('button', { name: 'Remove the condition on total' }).last().click();
  await page.getByLabel('Rows per page').selectOption('50');
  await page.getByLabel('Sort by').fill('total');
  await page.getByRole('group', { name: 'Order of the results' }).getByRole('button', { name: 'Descending' }).click();
  // The server sorts only by an index, which the page suggests.
  await page.getByRole('button', { name: 'Find' }).click();
  await page.getByText('The server sorts results only by an index.').waitFor();
  await page.getByRole('button', { name: 'Create this index' }).click();
  await page.getByText('An index on total is created.').waitFor();
  await page.getByRole('button', { name: 'Find' }).click();
  await page.getByRole('heading', { name: '50 documents' }).waitFor();
  const typed = JSON.parse(new URL(page.url().replace('#/', '')).searchParams.get('q'));
  assert.deepEqual(typed, { selector: { total: { $gt: 100 } }, limit: 50, sort: [{ total: 'desc' }] });
  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('heading', { name: '100 documents' }).waitFor();
});

flow('columns of the results are chosen and resized', `#/db/${db}/query?q=${encodeURIComponent('{"selector":{"city":"Oslo"},"limit":20}')}`, async (page) => {
  const found = page.getByRole('region', { name: 'Documents found' });
  const head = (name) => found.getByRole('columnheader', { name: new RegExp(`^${name}`) });
  await head('customer').waitFor();
  await page.getByRole('button', { name: 'Columns' }).click();
  await page.getByRole('dialog').getByLabel('customer').uncheck();
  await page.getByRole('dialog').getByLabel('lines').check();
  await page.getByRole('dialog').getByRole('button', { name: 'Done' }).click();
  await head('customer').waitFor({ state: 'detached' });
  const before = (await head('lines').boundingBox()).width;
  await found.getByRole('separator', { name: 'Width of lines' }).focus();
  for (let step = 0; step < 3; step += 1) await page.keyboard.press('ArrowRight');
  assert.ok((await head('lines').boundingBox()).width > before + 40);
});
