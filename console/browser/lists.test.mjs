// Exports of lists, and undo of deletions and edits.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before } from 'node:test';
import { ORIGIN, flows, freshName, http, launch, httpOk, orders, seed } from './support.mjs';

let browser;
const db = freshName('lists');
const COUNT = 2300;

before(async () => {
  browser = await launch();
  await seed(db, COUNT);
  await httpOk('POST', `${db}/_bulk_docs`, { docs: [{ _id: 'zz-last', text: 'a "quoted", line\nand another', only: [1, { a: 2 }] }] });
});
after(async () => {
  await browser?.close();
  await http('DELETE', db);
});

const flow = flows(() => browser);
const goTo = (page, hash) => page.evaluate((next) => { location.hash = next; }, hash);

async function exported(page, format) {
  const file = page.waitForEvent('download', { timeout: 30_000 });
  await page.getByRole('button', { name: 'Export', exact: true }).click();
  await page.getByRole('button', { name: `Export as ${format}` }).click();
  const found = await file;
  return { name: found.suggestedFilename(), text: readFileSync(await found.path(), 'utf8') };
}

flow('all documents are exported in three formats', `#/db/${db}`, async (page) => {
  await page.getByRole('region', { name: 'Documents' }).getByRole('link').first().waitFor();
  const total = (await httpOk('GET', db)).doc_count;
  const lines = await exported(page, 'NDJSON');
  assert.equal(lines.name, `${db}.ndjson`);
  const docs = lines.text.trimEnd().split('\n').map((line) => JSON.parse(line));
  assert.equal(docs.length, total);
  assert.equal(new Set(docs.map(({ _id }) => _id)).size, total);
  assert.ok(lines.text.includes('12345678901234567890') && lines.text.includes('1.50'));
  const json = await exported(page, 'JSON');
  assert.equal(JSON.parse(json.text).length, total);
  const csv = await exported(page, 'CSV');
  const [head, ...rows] = csv.text.split('\n');
  assert.ok(head.startsWith('_id,_rev') && head.includes('only'), head);
  assert.ok(rows.find((row) => row.startsWith('exact,')).includes('12345678901234567890'));
  // A cell with a line break occupies two lines.
  assert.ok(csv.text.includes('"a ""quoted"", line\nand another"') && csv.text.includes('"[1,{""a"":2}]"'));
  await page.getByLabel('Documents whose ids begin with').fill('order-00022');
  await page.waitForURL(/q=order-00022/);
  await page.getByRole('region', { name: 'Documents' }).getByRole('link', { name: 'order-0002200' }).waitFor();
  await page.getByRole('region', { name: 'Documents' }).getByRole('link', { name: 'exact' }).waitFor({ state: 'detached' });
  assert.equal((await exported(page, 'NDJSON')).text.trimEnd().split('\n').length, 100);
});

flow('rows, groups, results, hits and changes are exported', `#/db/${db}/view/orders/by_city`, async (page) => {
  await page.getByRole('region', { name: 'Rows of the view' }).getByText('"Berlin"').first().waitFor();
  const rows = JSON.parse((await exported(page, 'JSON')).text);
  assert.deepEqual([rows.length, new Set(rows.map(({ id }) => id)).size, rows[0].key[0]], [COUNT, COUNT, 'Berlin']);
  await page.getByRole('button', { name: 'Groups' }).click();
  await page.getByRole('cell', { name: /Berlin/ }).first().waitFor();
  const groups = JSON.parse((await exported(page, 'JSON')).text);
  assert.equal(groups.reduce((sum, { value }) => sum + value.count, 0), COUNT);
  await goTo(page, `#/db/${db}/query?q=${encodeURIComponent('{"selector":{"state":"paid"},"fields":["_id","total"],"limit":3}')}`);
  await page.getByText('3 documents', { exact: true }).waitFor();
  const found = (await exported(page, 'CSV')).text.trimEnd().split('\n');
  assert.deepEqual([found[0], found.length - 1], ['_id,total', COUNT / 4]);
  await goTo(page, `#/db/${db}/search?q=${encodeURIComponent('city:lima')}`);
  await page.getByText(/^\d+ documents$/).waitFor();
  const hits = (await exported(page, 'NDJSON')).text.trimEnd().split('\n').map((line) => JSON.parse(line));
  assert.ok(hits.length > 250 && hits.every(({ city }) => city === 'Lima'), `${hits.length}`);
  await goTo(page, `#/db/${db}/changes`);
  await page.getByRole('table').waitFor();
  const changes = (await exported(page, 'NDJSON')).text.trimEnd().split('\n').map((line) => JSON.parse(line));
  assert.equal(new Set(changes.map(({ id }) => id)).size, (await httpOk('GET', db)).doc_count);
});

flow('a deletion is undone from the toast and from the page of the document', `#/db/${db}/doc/files`, async (page) => {
  const remove = async () => {
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByText('files is deleted.').waitFor();
    assert.equal((await http('GET', `${db}/files`)).status, 404);
  };
  await page.locator('.cm-content').getByText('With files').waitFor();
  await remove();
  await page.getByRole('button', { name: 'Undo' }).click();
  await page.getByRole('heading', { name: 'files' }).waitFor();
  await page.locator('.cm-content').getByText('With files').waitFor();
  assert.equal((await http('GET', `${db}/files/notes.txt`)).text, 'A settee is a small couch.\n');
  await remove();
  await goTo(page, `#/db/${db}/doc/files`);
  await page.getByText('This document is deleted').waitFor();
  await page.getByRole('button', { name: 'Restore it' }).click();
  await page.locator('.cm-content').getByText('With files').waitFor();
  assert.equal(Object.keys((await httpOk('GET', `${db}/files`))._attachments).length, 2);
});

flow('an older revision is restored', `#/db/${db}/doc/order-0000005`, async (page) => {
  const old = await httpOk('GET', `${db}/order-0000005`);
  await httpOk('PUT', `${db}/order-0000005`, { ...old, city: 'Wrong' });
  await page.reload();
  await page.getByRole('link', { name: 'Revisions' }).click();
  await page.locator('.diff').getByText('Wrong').waitFor();
  await page.getByRole('button', { name: 'Restore this text' }).click();
  await page.getByText(/is saved as 3-/).waitFor();
  assert.equal((await httpOk('GET', `${db}/order-0000005`)).city, old.city);
});

flow('a bulk deletion is previewed and undone', `#/db/${db}?q=${encodeURIComponent('order-00001')}`, async (page) => {
  for (const id of ['order-0000100', 'order-0000101', 'order-0000102']) await page.getByLabel(`Select ${id}`).check();
  await page.getByRole('button', { name: 'Delete' }).click();
  const preview = page.getByRole('region', { name: 'Documents to delete' });
  await preview.getByText('order-0000102').waitFor();
  await preview.getByText(`Customer ${(100 * 7919) % 1000}`).waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByText('3 documents deleted.').waitFor();
  assert.equal((await http('GET', `${db}/order-0000101`)).status, 404);
  await page.getByRole('button', { name: 'Undo' }).click();
  await page.getByText('3 documents restored.').waitFor();
  const { _id, _rev, ...restored } = await httpOk('GET', `${db}/order-0000101`);
  const { _id: id, ...expected } = orders(1, 101)[0];
  assert.deepEqual([_id, _rev.split('-')[0], restored], [id, '3', expected]);
});

flow('columns are chosen and resized, and a reload keeps both', `#/db/${db}`, async (page) => {
  const list = page.getByRole('region', { name: 'Documents' });
  const head = (name) => list.locator('.grid-row.head > span', { hasText: new RegExp(`^${name}$`) });
  await head('city').waitFor();
  await page.getByRole('button', { name: 'Columns' }).click();
  await page.getByRole('dialog').getByLabel('city').uncheck();
  await page.getByRole('dialog').getByLabel('big').check();
  await page.getByRole('dialog').getByRole('button', { name: 'Done' }).click();
  await head('big').waitFor();
  assert.equal(await head('city').count(), 0);
  await list.getByText('12345678901234567890').waitFor();
  const before = (await head('big').boundingBox()).width;
  const grip = list.getByRole('separator', { name: 'Width of big' });
  await grip.focus();
  for (let step = 0; step < 5; step += 1) await page.keyboard.press('ArrowRight');
  assert.equal(Math.round((await head('big').boundingBox()).width - before), 100);
  await grip.hover();
  const { x, y } = await grip.boundingBox();
  await page.mouse.down();
  await page.mouse.move(x - 46, y + 4);
  await page.mouse.up();
  assert.equal(Math.round((await head('big').boundingBox()).width - before), 50);
  await page.reload();
  await head('big').waitFor();
  assert.equal(Math.round((await head('big').boundingBox()).width - before), 50);
});

/** Returns the values of a column of the visible rows. `column` counts from the selection, which is 0. */
const values = (page, column) => page.locator('.virtual .grid-row.body').evaluateAll((rows, at) => rows.map((row) => row.children[at].innerText), column);
const sortedNumbers = async (page, column) => {
  const found = (await values(page, column)).map(Number);
  return [found, found.toSorted((a, b) => a - b)];
};

flow('a large database is sorted by an index, which the page offers to create', `#/db/${db}?cols=${encodeURIComponent('["total","state","city"]')}`, async (page) => {
  const list = page.getByRole('region', { name: 'Documents' });
  const foot = page.locator('.list-foot');
  for (const { ddoc, name } of (await httpOk('GET', `${db}/_index`)).indexes) if (name === 'by-total') await httpOk('DELETE', `${db}/_index/${ddoc.replace('/', '%2F')}/json/${name}`);
  await list.getByRole('button', { name: 'total' }).click();
  await page.getByText('No index on total').waitFor();
  assert.equal(await list.count(), 0, 'an unsorted list is not shown');
  await page.getByRole('button', { name: 'Create an index on total' }).click();
  await foot.getByText('sorted by the index by-total, ascending. Documents without total are not listed.').waitFor();
  assert.deepEqual(...await sortedNumbers(page, 2));
  assert.equal(Number((await values(page, 2))[0]), 0);
  // The order continues over the pages.
  const idle = () => page.waitForFunction(() => !document.querySelector('.list-foot')?.textContent.includes('loading'));
  await list.focus();
  for (let press = 0; press < 8; press += 1) {
    await page.keyboard.press('End');
    await idle();
    assert.deepEqual(...await sortedNumbers(page, 2));
  }
  await list.getByRole('button', { name: /total sorted ascending/ }).click();
  await foot.getByText(', descending.').waitFor();
  await page.waitForURL(/by=total&order=down/);
  await list.getByRole('button', { name: /total sorted descending/ }).and(page.locator(':focus')).waitFor();
  const highest = Math.max(...orders(COUNT).map(({ total }) => total));
  await list.locator('.grid-row.body').first().getByText(String(highest), { exact: true }).waitFor();
  await page.reload();
  await list.locator('.grid-row.body').first().getByText(String(highest), { exact: true }).waitFor();
  await page.getByLabel('Documents whose ids begin with').fill('order-00001');
  const some = Math.max(...orders(100, 100).map(({ total }) => total));
  await list.locator('.grid-row.body').first().getByText(String(some), { exact: true }).waitFor();
  await page.getByLabel('Documents whose ids begin with').fill('');
  await list.getByRole('button', { name: /total sorted descending/ }).click();
  await list.getByRole('link', { name: 'exact' }).waitFor();
  // An index on further fields sorts too, and the page names them.
  await list.getByRole('button', { name: 'state' }).click();
  await foot.getByText('sorted by the index by-state, ascending. Documents without state or placed are not listed.').waitFor();
  assert.deepEqual([...new Set(await values(page, 3))], ['open']);
});

flow('a small database and a small view are sorted in the browser', '#/databases', async (page) => {
  const small = freshName('small');
  await seed(small, 300);
  await httpOk('POST', `${small}/_bulk_docs`, { docs: [{ _id: 'odd', total: ['a'] }, { _id: 'none', other: 1 }] });
  const list = page.getByRole('region', { name: 'Documents' });
  await goTo(page, `#/db/${small}?cols=${encodeURIComponent('["total","city"]')}`);
  await list.getByRole('button', { name: 'total' }).click();
  const { doc_count: count } = await httpOk('GET', small);
  await page.getByText(`all ${count} documents, sorted by total in the browser, ascending`).waitFor();
  assert.deepEqual(...await sortedNumbers(page, 2));
  await list.focus();
  await page.keyboard.press('End');
  // Arrays follow numbers, and documents without the member are last in both directions.
  await list.getByRole('link', { name: 'none' }).waitFor();
  await list.getByRole('button', { name: /total sorted ascending/ }).click();
  await list.getByRole('link', { name: 'odd' }).waitFor();
  assert.equal((await values(page, 1))[0], 'odd', 'the list is scrolled to its start');
  await list.focus();
  await page.keyboard.press('End');
  await list.getByRole('link', { name: 'none' }).waitFor();

  await goTo(page, `#/db/${small}/view/orders/by_month`);
  const rows = page.getByRole('region', { name: 'Rows of the view' });
  await rows.getByRole('button', { name: 'value' }).click();
  await page.getByText('all 300 rows of the list, sorted by value in the browser, ascending').waitFor();
  assert.deepEqual(...await sortedNumbers(page, 1));
  await page.getByRole('button', { name: 'Groups' }).click();
  await page.getByRole('table').getByRole('button', { name: 'Value' }).click();
  await page.locator('th[aria-sort="ascending"]').waitFor();
  const sums = (await page.locator('td.num').allInnerTexts()).map(Number);
  assert.deepEqual(sums, sums.toSorted((a, b) => a - b));

  // A list that is too long keeps the order of the server, and the page says so.
  await goTo(page, `#/db/${db}/view/orders/by_month`);
  await rows.getByRole('button', { name: 'value' }).click();
  await page.getByText('The list is too long to be sorted by value in the browser').waitFor();
  assert.equal(await rows.getByRole('button', { name: /sorted/ }).count(), 0);
  await http('DELETE', small);
});

flow('results of a query are sorted by a click', `#/db/${db}/query?q=${encodeURIComponent('{"selector":{"city":"Oslo"},"fields":["_id","total"],"limit":20}')}`, async (page) => {
  const found = page.getByRole('region', { name: 'Documents found' });
  await found.getByRole('button', { name: 'total' }).click();
  await found.locator('th[aria-sort="ascending"]').waitFor();
  const totals = async () => (await found.locator('tbody tr').evaluateAll((rows) => rows.map((row) => row.cells[1].innerText))).map(Number);
  const ascending = await totals();
  assert.deepEqual(ascending, ascending.toSorted((a, b) => a - b));
  await found.getByRole('button', { name: 'total' }).click();
  await found.locator('th[aria-sort="descending"]').waitFor();
  assert.deepEqual(await totals(), ascending.toReversed());
  await page.getByText('Only the loaded documents are sorted by total').waitFor();
});

flow('documents and rows of a view are read in pages of a chosen number of rows', `#/db/${db}?view=meta&cols=`, async (page) => {
  const list = page.getByRole('region', { name: 'Documents' });
  const controls = page.locator('.row-pages');
  const ids = () => page.locator('.virtual .grid-row.body a').allInnerTexts();
  const expected = (await httpOk('GET', `${db}/_all_docs?limit=80`)).rows.map(({ id }) => id);
  await list.getByRole('link', { name: 'exact' }).waitFor();
  await page.getByLabel('Rows per page').selectOption('25');
  await controls.getByText('1 to 25', { exact: true }).waitFor();
  assert.ok(await controls.getByRole('button', { name: 'Previous' }).isDisabled());
  assert.deepEqual(await ids(), expected.slice(0, 25));
  for (const first of [26, 51]) {
    await controls.getByRole('button', { name: 'Next' }).click();
    await controls.getByText(`${first} to ${first + 24}`, { exact: true }).waitFor();
    assert.deepEqual(await ids(), expected.slice(first - 1, first + 24));
  }
  // A reload keeps the page, and the rows before it are read when they are needed.
  await page.waitForURL(new RegExp(`rows=25.*from=${encodeURIComponent(expected[50])}`));
  await page.reload();
  await controls.getByText('51 to 75', { exact: true }).waitFor();
  await controls.getByRole('button', { name: 'Previous' }).click();
  await controls.getByText('26 to 50', { exact: true }).waitFor();
  assert.deepEqual(await ids(), expected.slice(25, 50));
  // Another list starts with its first page, and its last page is incomplete.
  await page.getByLabel('Documents whose ids begin with').fill('order-000000');
  await list.getByRole('link', { name: 'order-0000000' }).waitFor();
  await controls.getByText('1 to 10', { exact: true }).waitFor();
  assert.ok(await controls.getByRole('button', { name: 'Next' }).isDisabled());
  await page.getByLabel('Documents whose ids begin with').fill('');
  await controls.getByText('1 to 25', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Descending' }).click();
  await list.getByRole('link', { name: 'zz-last' }).waitFor();
  assert.equal((await ids()).length, 25);

  // The number of rows is kept for other lists.
  await goTo(page, `#/db/${db}/view/orders/by_month`);
  await page.getByRole('region', { name: 'Rows of the view' }).waitFor();
  await controls.getByText('1 to 25', { exact: true }).waitFor();
  const rows = (await httpOk('GET', `${db}/_design/orders/_view/by_month?reduce=false&limit=50`)).rows.map(({ id }) => id);
  await controls.getByRole('button', { name: 'Next' }).click();
  await controls.getByText('26 to 50', { exact: true }).waitFor();
  assert.deepEqual(await ids(), rows.slice(25));
  await page.getByLabel('Rows per page').selectOption('all');
  await controls.getByRole('button', { name: 'Next' }).waitFor({ state: 'detached' });
});

flow('the lists of databases, users, fields and log lines are exported', '#/databases', async (page) => {
  await page.getByRole('link', { name: db, exact: true }).waitFor();
  const databases = JSON.parse((await exported(page, 'JSON')).text);
  const own = databases.find(({ name }) => name === db);
  assert.deepEqual([own.documents, own.partitioned], [(await httpOk('GET', db)).doc_count, false]);
  const name = freshName('exported');
  await http('PUT', '_users', {});
  await httpOk('PUT', `_users/org.couchdb.user:${name}`, { name, password: 'secret', roles: ['a'], type: 'user' });
  await goTo(page, `#/users?q=${name}`);
  await page.getByRole('link', { name, exact: true }).waitFor();
  const [user, ...others] = JSON.parse((await exported(page, 'JSON')).text);
  assert.deepEqual([user.name, user.roles, user.salt, user.derived_key, others], [name, ['a'], undefined, undefined, []]);
  await goTo(page, `#/db/${db}/schema`);
  await page.getByRole('cell', { name: 'city', exact: true }).waitFor();
  assert.ok((await exported(page, 'CSV')).text.startsWith('field,types,documents,examples\n'));
  await goTo(page, '#/logs');
  await page.locator('.log div').first().waitFor();
  assert.ok((await exported(page, 'NDJSON')).text.split('\n').length > 1);
  await http('DELETE', `_users/org.couchdb.user:${name}?rev=${user._rev}`);
});

const CONFIG = '_node/_local/_config';

flow('the attachments of a document are exported', `#/db/${db}/doc/files?tab=attachments`, async (page) => {
  await page.getByRole('heading', { name: '2 attachments' }).waitFor();
  const stubs = (await httpOk('GET', `${db}/files`))._attachments;
  const expected = Object.entries(stubs).map(([name, { content_type, length, digest, revpos }]) => ({ name, content_type, length, digest, revpos }));
  const json = await exported(page, 'JSON');
  assert.deepEqual([json.name, JSON.parse(json.text)], ['files-attachments.json', expected]);
  const lines = (await exported(page, 'NDJSON')).text.trimEnd().split('\n').map((line) => JSON.parse(line));
  assert.deepEqual(lines, expected);
  const csv = (await exported(page, 'CSV')).text.trimEnd().split('\n');
  assert.deepEqual(csv, ['name,content_type,length,digest,revpos', ...expected.map((stub) => Object.values(stub).join(','))]);
});

flow('the keys of the configuration are exported without secrets', '#/config', async (page) => {
  const added = [['exported', 'api_token', 'hidden-1'], ['exported', 'upstream', 'https://ann:hidden-2@example.test/a'], ['exported', 'plain', 'shown, "quoted"']];
  for (const [section, key, value] of added) await httpOk('PUT', `${CONFIG}/${section}/${key}`, JSON.stringify(value));
  try {
    await page.reload();
    await page.getByRole('navigation', { name: 'Sections' }).getByRole('link', { name: 'exported', exact: true }).waitFor();
    const json = await exported(page, 'JSON');
    assert.equal(json.name, 'configuration.json');
    const keys = JSON.parse(json.text);
    const of = (section, key) => keys.find((each) => each.section === section && each.key === key)?.value;
    assert.deepEqual(added.map(([section, key]) => of(section, key)), ['***', 'https://ann:***@example.test/a', 'shown, "quoted"']);
    const sections = await httpOk('GET', CONFIG);
    const set = Object.entries(sections).flatMap(([section, names]) => Object.keys(names).map((key) => [section, key]));
    assert.ok(set.every(([section, key]) => of(section, key) !== undefined), 'the export contains all sections');
    for (const hash of Object.values(sections.admins ?? {})) assert.ok(!json.text.includes(hash), 'the export contains no hash of a password');
    for (const format of ['NDJSON', 'CSV']) assert.ok(!(await exported(page, format)).text.includes('hidden-'));
    await page.getByLabel('Search keys and descriptions').fill('exported');
    await page.locator('.key-item', { hasText: '[exported] plain' }).waitFor();
    const csv = (await exported(page, 'CSV')).text.split('\n');
    assert.ok(csv[0].startsWith('section,key,value') && csv.some((row) => row.startsWith('exported,plain,"shown, ""quoted"""')), csv.join('\n'));
  } finally {
    for (const [section, key] of added) await http('DELETE', `${CONFIG}/${section}/${key}`);
  }
});

flow('active tasks are exported', '#/activity', async (page) => {
  const name = freshName('building');
  // With this budget a background build waits for minutes after its first batch, so the task is listed during the test.
  await httpOk('PUT', `${CONFIG}/ken/bytes_per_second`, '"1"');
  try {
    await httpOk('PUT', name, {});
    await httpOk('POST', `${name}/_bulk_docs`, { docs: orders(3000, 0) });
    await httpOk('PUT', `${name}/_design/slow`, { views: { slow: { map: 'function (doc) { emit(doc.city, null); }' } } });
    await httpOk('POST', `${name}/_design/slow/_build`, { action: 'start' });
    await page.locator('.build', { hasText: name }).waitFor();
    const tasks = JSON.parse((await exported(page, 'JSON')).text);
    const own = tasks.find(({ database }) => database?.includes(name));
    assert.deepEqual([own.type, own.design_document, typeof own.started_on], ['indexer', '_design/slow', 'number']);
    const lines = (await exported(page, 'NDJSON')).text.trimEnd().split('\n').map((line) => JSON.parse(line));
    assert.ok(lines.some(({ database }) => database?.includes(name)));
    const [head, ...rows] = (await exported(page, 'CSV')).text.trimEnd().split('\n');
    assert.ok(head.split(',').includes('database') && rows.some((row) => row.includes(name)), head);
    // The list shows one kind of tasks, and so does its export.
    await page.getByRole('button', { name: 'Compactions' }).click();
    await page.locator('.build', { hasText: name }).waitFor({ state: 'detached' });
  } finally {
    await http('DELETE', `${CONFIG}/ken/bytes_per_second`);
    await http('DELETE', name);
  }
});

flow('stored and running replications are exported without passwords', '#/replication', async (page) => {
  const [failing, running] = [freshName('failing'), freshName('running')];
  await http('PUT', '_replicator', {});
  await httpOk('PUT', `_replicator/${failing}`, { source: `${ORIGIN.replace('//', '//ann:hidden-1@')}/none`, target: `${ORIGIN.replace('//', '//ann:hidden-2@')}/none2` });
  await httpOk('PUT', `_replicator/${running}`, { source: db, target: running, create_target: true, continuous: true });
  try {
    await page.getByRole('row', { name: new RegExp(running) }).waitFor();
    const json = await exported(page, 'JSON');
    const stored = JSON.parse(json.text);
    assert.equal(json.name, 'replications.json');
    assert.ok([failing, running].every((id) => stored.some(({ doc_id }) => doc_id === id)), json.text);
    for (const format of ['JSON', 'NDJSON', 'CSV']) {
      const { text } = await exported(page, format);
      assert.ok(text.includes(failing) && !text.includes('hidden-'), text);
    }
    await page.getByRole('button', { name: /^Running/ }).click();
    await page.getByRole('table', { name: 'Running replications' }).getByRole('row', { name: new RegExp(running) }).waitFor();
    const jobs = (await exported(page, 'NDJSON')).text.trimEnd().split('\n').map((line) => JSON.parse(line));
    assert.ok(jobs.some(({ doc_id, history }) => doc_id === running && Array.isArray(history)));
  } finally {
    for (const id of [failing, running]) {
      const { body } = await http('GET', `_replicator/${id}`);
      await http('DELETE', `_replicator/${id}?rev=${body?._rev}`);
    }
    await http('DELETE', running);
  }
});

flow('slow requests are exported', '#/slow', async (page) => {
  // With a limit of 0 every request is slow.
  await httpOk('PUT', `${CONFIG}/log/slow_request_ms`, '"0"');
  try {
    await httpOk('GET', `${db}/_design/orders/_view/by_city?reduce=false&limit=1`);
    await page.getByRole('row', { name: new RegExp(`${db}.*by_city`) }).first().waitFor();
    const found = JSON.parse((await exported(page, 'JSON')).text);
    const own = found.find(({ target }) => target.includes(`${db}/_design/orders/_view/by_city`));
    assert.deepEqual([own.method, typeof own.ms, own.line.includes('a slow request')], ['GET', 'number', true]);
    const lines = (await exported(page, 'NDJSON')).text.trimEnd().split('\n').map((line) => JSON.parse(line));
    assert.ok(lines.some(({ target }) => target === own.target));
    const csv = (await exported(page, 'CSV')).text;
    assert.ok(csv.startsWith('method,target,ms,route,') && csv.includes(own.target));
  } finally {
    await http('DELETE', `${CONFIG}/log/slow_request_ms`);
  }
});

flow('the schema shows fields, types, frequency and examples', `#/db/${db}/schema`, async (page) => {
  const row = (name) => page.getByRole('row').filter({ has: page.locator('td:first-child', { hasText: new RegExp(`^${name.replaceAll('[', '\\[').replaceAll(']', '\\]')}$`) }) });
  await row('city').getByText('string', { exact: true }).waitFor();
  await row('total').getByText('number', { exact: true }).waitFor();
  await row('lines[].sku').getByText('string', { exact: true }).waitFor();
  await row('lines').getByText('array', { exact: true }).waitFor();
  await page.getByLabel('Fields that contain').fill('cit');
  await row('total').waitFor({ state: 'detached' });
  await row('city').getByRole('link', { name: 'Query' }).click();
  await page.getByText('25 documents').waitFor();
});

flow('a member is edited in its cell, and the edit is undone', `#/db/${db}?q=${encodeURIComponent('order-000015')}`, async (page) => {
  const row = page.locator('.grid-row.body', { hasText: 'order-0000150' });
  const { city, total } = await httpOk('GET', `${db}/order-0000150`);
  await row.getByText(city, { exact: true }).dblclick();
  await page.getByLabel('city of order-0000150').fill('Bergen');
  await page.keyboard.press('Tab');
  await page.getByText('city of order-0000150 is saved').waitFor();
  // Tab edits the next cell, and F2 edits the selected row.
  await page.keyboard.press('Escape');
  await row.getByText('Bergen').waitFor();
  const saved = await httpOk('GET', `${db}/order-0000150`);
  assert.deepEqual([saved.city, saved.total, saved._rev.split('-')[0]], ['Bergen', total, '2']);
  await page.getByRole('button', { name: 'Undo' }).click();
  await row.getByText(city, { exact: true }).waitFor();
  assert.equal((await httpOk('GET', `${db}/order-0000150`)).city, city);
  await page.getByRole('region', { name: 'Documents' }).focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('F2');
  await page.getByLabel('type of order-0000150').waitFor();
  await page.keyboard.press('Escape');
  // After a conflict with another client, the refusal is shown and the change of that client is kept.
  const theirs = await httpOk('GET', `${db}/order-0000151`);
  await httpOk('PUT', `${db}/order-0000151`, { ...theirs, city: 'Accra' });
  await page.locator('.grid-row.body', { hasText: 'order-0000151' }).getByText(theirs.city, { exact: true }).dblclick();
  await page.getByLabel('city of order-0000151').fill('Bern');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').getByText('Document update conflict').waitFor();
  assert.equal((await httpOk('GET', `${db}/order-0000151`)).city, 'Accra');
});
