// Pages of databases and documents.
import assert from 'node:assert/strict';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { NAME, PASSWORD, flows, freshName, http, launch, httpOk, openPage, orders, seed } from './support.mjs';

let browser;
const db = freshName('flows');

before(async () => {
  browser = await launch();
  await seed(db, 600);
});
after(async () => {
  await browser?.close();
  await http('DELETE', db);
});

const flow = flows(() => browser);

/** Locates the text of an editor in its shadow root. */
const editor = (page, label) => page.locator(`[data-editor="${label}"] .cm-content`);

async function retype(page, label, text) {
  await editor(page, label).click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText(text);
}

test('login and logout', { timeout: 40_000 }, async () => {
  const page = await openPage(browser, { user: null, start: `#/login?back=${encodeURIComponent(`#/db/${db}`)}` });
  await page.getByLabel('Name').fill(NAME);
  await page.getByLabel('Password').fill('wrong');
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByText('Name or password is wrong.').waitFor();
  await page.getByLabel('Password').fill(PASSWORD);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: db }).waitFor();
  await page.getByRole('button', { name: `Session of ${NAME}` }).click();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('heading', { name: 'Log in' }).waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

flow('a database is created, found, and deleted after its name is typed', '#/databases', async (page) => {
  const name = freshName('made');
  await page.getByRole('button', { name: 'Create database' }).first().click();
  await page.getByRole('textbox', { name: 'Name' }).fill('Wrong Name');
  await page.getByText('Lower-case letters').waitFor();
  await page.getByRole('textbox', { name: 'Name' }).fill(name);
  await page.getByLabel('Partitioned').check();
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByText('No documents yet').waitFor();
  assert.equal((await httpOk('GET', name)).props.partitioned, true);
  await page.goto(page.url().replace(/#.*/, '#/databases'));
  await page.getByLabel('Databases whose names begin with').fill(name.slice(0, -1));
  await page.getByRole('link', { name, exact: true }).waitFor();
  await page.waitForURL(/q=made/);
  await page.getByRole('button', { name: `Actions on ${name}` }).click();
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  const last = page.getByRole('button', { name: 'Delete permanently' });
  assert.equal(await last.isDisabled(), true);
  await page.getByLabel(`Type ${name} to confirm`).fill(name);
  await last.click();
  await page.getByText('No name begins with').waitFor();
  assert.equal((await http('GET', name)).status, 404);
});

flow('documents are listed in three formats, and the address contains the format', `#/db/${db}`, async (page) => {
  const table = page.getByRole('region', { name: 'Documents' });
  await table.getByText('customer', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'JSON', exact: true }).click();
  await table.getByText('12345678901234567890').waitFor();
  await page.getByRole('button', { name: 'Metadata' }).click();
  await table.getByText('1-aaaa').or(table.getByText('1-bbbb')).or(table.getByText('rev', { exact: true })).first().waitFor();
  await page.reload();
  await page.waitForURL(/view=meta/);
  await table.getByText('rev', { exact: true }).waitFor();
  await page.getByLabel('Documents whose ids begin with').fill('order-00005');
  await table.getByRole('link', { name: 'order-0000500' }).waitFor();
  await table.getByRole('link', { name: 'order-0000499' }).waitFor({ state: 'detached' });
  await page.goBack();
  await page.locator('.doc-card').first().waitFor();
  await page.goBack();
  await table.getByText('customer', { exact: true }).waitFor();
});

flow('a list is scrolled to its end with the keyboard, and a reload restores the position', `#/db/${db}?view=meta`, async (page) => {
  const list = page.getByRole('region', { name: 'Documents' });
  await list.getByRole('link', { name: 'order-0000000' }).waitFor();
  await list.focus();
  for (let press = 0; press < 30 && (await list.getByRole('link', { name: 'order-0000599' }).count()) === 0; press += 1) {
    await page.keyboard.press('End');
    await page.waitForFunction(() => !document.querySelector('.list-foot')?.textContent.includes('loading'));
  }
  await list.getByRole('link', { name: 'order-0000599' }).waitFor();
  await page.waitForURL(/from=order-/);
  await page.reload();
  await list.getByRole('link', { name: 'order-0000599' }).waitFor();
  // Scrolling up loads the earlier rows.
  await list.focus();
  for (let press = 0; press < 40 && (await list.getByRole('link', { name: 'exact' }).count()) === 0; press += 1) {
    await page.keyboard.press('Home');
    await page.waitForFunction(() => !document.querySelector('.list-foot')?.textContent.includes('loading'));
  }
  await list.getByRole('link', { name: 'exact' }).waitFor();
});

flow('several documents are selected and deleted', `#/db/${db}?q=${encodeURIComponent('order-000001')}`, async (page) => {
  for (const id of ['order-0000010', 'order-0000011']) await page.getByLabel(`Select ${id}`).check();
  await page.getByText('2 documents selected').waitFor();
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByText('2 documents deleted.').waitFor();
  assert.equal((await http('GET', `${db}/order-0000011`)).status, 404);
});

flow('documents by keys', `#/db/${db}`, async (page) => {
  await page.getByRole('button', { name: 'Keys' }).click();
  await page.getByLabel('Ids, one per line').fill('torn\nexact\nnone');
  await page.getByRole('button', { name: 'Show' }).click();
  await page.getByRole('link', { name: 'torn' }).waitFor();
  await page.getByText('not_found').waitFor();
  await page.waitForURL((url) => decodeURIComponent(url.href).includes('keys=["torn","exact","none"]'));
});

flow('a document is edited, and its numbers keep their text', `#/db/${db}/doc/exact`, async (page) => {
  const label = 'JSON of exact';
  await editor(page, label).getByText('1.50').waitFor();
  await editor(page, label).getByText('Numbers are kept').dblclick();
  await page.keyboard.press('End');
  await page.keyboard.type(',\n"more": 1e300');
  await page.keyboard.press('Control+s');
  await page.getByText('Saved as 2-').waitFor();
  const { text } = await http('GET', `${db}/exact`);
  for (const kept of ['12345678901234567890', '1.50', '1e-7', '1e300']) assert.ok(text.includes(kept), text);
});

flow('invalid JSON is marked, and kept when the page is left', `#/db/${db}/doc/order-0000300`, async (page) => {
  const label = 'JSON of order-0000300';
  await retype(page, label, '{"a": }');
  await page.locator(`[data-editor="${label}"] .cm-lintRange-error`).first().waitFor();
  await page.getByRole('button', { name: 'Save' }).click();
  // Only in the alert, because the name of the database may contain the number.
  await page.getByRole('alert').getByText('400 bad_request').waitFor();
  await page.getByRole('link', { name: 'Databases' }).first().click();
  await page.getByRole('heading', { name: 'Databases' }).waitFor();
  await page.goBack();
  await editor(page, label).getByText('{"a": }').waitFor();
});

flow('a save that conflicts shows both texts', `#/db/${db}/doc/order-0000301`, async (page) => {
  const label = 'JSON of order-0000301';
  await editor(page, label).getByText('order-0000301').waitFor();
  const theirs = await httpOk('GET', `${db}/order-0000301`);
  await httpOk('PUT', `${db}/order-0000301`, { ...theirs, city: 'Accra' });
  await retype(page, label, JSON.stringify({ ...theirs, city: 'Bern' }));
  await page.keyboard.press('Control+s');
  await page.getByText('This document was saved by another client').waitFor();
  await page.locator('.diff').getByText('Accra').waitFor();
  await page.getByRole('button', { name: 'Save mine over theirs' }).click();
  await page.getByText('Saved as 3-').waitFor();
  assert.equal((await httpOk('GET', `${db}/order-0000301`)).city, 'Bern');
});

flow('a conflict is resolved with one click', `#/db/${db}/doc/torn`, async (page) => {
  await page.getByText('in conflict').waitFor();
  await page.getByRole('link', { name: 'Conflicts' }).click();
  await page.locator('.diff').getByText('from Lima').waitFor();
  await page.getByRole('button', { name: 'Keep the right' }).click();
  await page.getByText('All replicas agree').waitFor();
  const doc = await httpOk('GET', `${db}/torn?conflicts=true`);
  assert.deepEqual([doc.price, doc._conflicts], [120, undefined]);
});

flow('older revisions are compared', `#/db/${db}/doc/order-0000302`, async (page) => {
  const doc = await httpOk('GET', `${db}/order-0000302`);
  await httpOk('PUT', `${db}/order-0000302`, { ...doc, city: 'Changed' });
  await page.reload();
  await page.getByRole('link', { name: 'Revisions' }).click();
  await page.locator('.diff').getByText('Changed').waitFor();
  await page.getByRole('link', { name: 'Open this revision' }).click();
  await page.getByText('an older revision').waitFor();
});

flow('a document is created, cloned and deleted', `#/db/${db}/new`, async (page) => {
  await editor(page, 'JSON of the new document').getByText('_id').waitFor();
  await retype(page, 'JSON of the new document', '{"_id": "a/b c?d", "n": 1.0}');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: 'a/b c?d' }).waitFor();
  await page.getByRole('button', { name: 'Clone' }).click();
  await page.getByLabel('Id of the clone').fill('a clone');
  await page.getByRole('dialog').getByRole('button', { name: 'Clone' }).click();
  await page.getByRole('heading', { name: 'a clone' }).waitFor();
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByText('a clone is deleted.').waitFor();
  assert.deepEqual([(await http('GET', `${db}/a%20clone`)).status, (await http('GET', `${db}/${encodeURIComponent('a/b c?d')}`)).status], [404, 200]);
});

flow('attachments are uploaded, previewed, downloaded and deleted', `#/db/${db}/doc/files?tab=attachments`, async (page) => {
  await page.getByText('square.png').waitFor();
  const chosen = page.waitForEvent('filechooser');
  await page.getByRole('button', { name: 'Choose files' }).click();
  await (await chosen).setFiles([{ name: 'new one.txt', mimeType: 'text/plain', buffer: Buffer.from('hello <b>you</b>') }, { name: 'b.bin', mimeType: '', buffer: Buffer.from([0, 1]) }]);
  await page.getByText('2 files attached.').waitFor();
  await page.getByRole('row', { name: /new one\.txt/ }).getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('dialog').getByText('hello <b>you</b>').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('row', { name: /square\.png/ }).getByRole('button', { name: 'Preview' }).click();
  await page.waitForFunction(() => document.querySelector('.preview-image')?.naturalWidth > 0);
  await page.keyboard.press('Escape');
  const download = page.waitForEvent('download');
  await page.getByRole('row', { name: /notes\.txt/ }).getByRole('link', { name: 'Download' }).click();
  assert.equal((await download).suggestedFilename(), 'notes.txt');
  await page.getByRole('button', { name: 'Delete b.bin' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('row', { name: /b\.bin/ }).waitFor({ state: 'detached' });
  assert.deepEqual(Object.keys((await httpOk('GET', `${db}/files`))._attachments).sort(), ['new one.txt', 'notes.txt', 'square.png']);
});

flow('a CSV file is previewed and uploaded', `#/db/${db}/upload`, async (page) => {
  const chosen = page.waitForEvent('filechooser');
  await page.getByRole('button', { name: 'Choose a file' }).click();
  const rows = Array.from({ length: 700 }, (_, index) => `csv-${index},${index}.50,"a, b"`);
  await (await chosen).setFiles({ name: 'rows.csv', mimeType: 'text/csv', buffer: Buffer.from(`_id,price,note\n${rows.join('\n')}\ncsv-0,1.0,twice\n`) });
  await page.getByText('CSV').first().waitFor();
  await page.getByText('701 documents').waitFor();
  await page.getByRole('button', { name: 'Save 701' }).click();
  await page.getByText('700 saved, 1 refused').waitFor();
  assert.ok((await http('GET', `${db}/csv-7`)).text.includes('"price":7.50'));
});

flow('every valid line of a file is stored, and every other line is listed', '#/databases', async (page) => {
  const name = freshName('import');
  await httpOk('PUT', name, {});
  try {
    await httpOk('PUT', `${name}/_design/rules`, { validate_doc_update: 'function (doc) { if (doc.forbidden) throw({ forbidden: "not this one" }); }' });
    await httpOk('PUT', `${name}/id-900`, { here: true });
    const bad = new Map([
      [5, ['{"_id": "id-5", broken', /member is expected|A comma/]], [9, ['[1, 2]', /object/]], [701, [JSON.stringify({ _id: '_bad' }), /underscore|reserved/i]], [702, [JSON.stringify({ _id: '' }), /id/i]],
      [703, [JSON.stringify({ _id: 'id-703', _bad: 1 }), /_bad/]], [900, [JSON.stringify({ _id: 'id-900' }), /conflict/]], [1000, [JSON.stringify({ _id: 'id-1000', forbidden: true }), /not this one/]],
      [1500, [JSON.stringify({ _id: 'id-1500', text: 'x'.repeat(9_000_000) }), /large/]], [1999, [JSON.stringify({ _id: 'id-1' }), /conflict/]],
    ]);
    const lines = Array.from({ length: 2000 }, (_, index) => bad.get(index + 1)?.[0] ?? JSON.stringify(index % 3 === 0 ? { n: index } : { _id: `id-${index}`, n: index }));
    await page.goto(page.url().replace(/#.*/, `#/db/${name}/upload`));
    const chosen = page.waitForEvent('filechooser');
    await page.getByRole('button', { name: 'Choose a file' }).click();
    // From a file, because transferring a buffer of this size to the browser is slow.
    const folder = mkdtempSync(join(tmpdir(), 'settee-import-'));
    writeFileSync(join(folder, 'lines.ndjson'), lines.join('\n'));
    await (await chosen).setFiles(join(folder, 'lines.ndjson'));
    await page.getByRole('button', { name: 'Save 1,998' }).click();
    // The upload continues while another page is shown, and the page shows the result afterwards.
    await page.getByRole('link', { name: 'Databases' }).first().click();
    await page.getByRole('heading', { name: 'Databases' }).waitFor();
    await page.goBack();
    await page.getByText(`${(2000 - bad.size).toLocaleString('en')} saved, 7 refused, of 1,998.`).waitFor({ timeout: 40_000 });
    await page.getByRole('heading', { name: '9 lines are not stored' }).waitFor();
    const rows = await page.getByRole('region', { name: 'Lines that are not stored' }).locator('tbody tr').evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.innerText)));
    assert.deepEqual(rows.map(([line]) => Number(line)), [...bad.keys()]);
    for (const [line, id, reason] of rows) {
      const [text, expected] = bad.get(Number(line));
      assert.match(reason, expected, `line ${line}`);
      assert.equal(id, /"_id":\s*"([^"]+)"/.exec(text)?.[1] ?? (Number(line) === 702 ? '' : 'none'), `line ${line}`);
    }
    assert.equal((await httpOk('GET', name)).doc_count, 2000 - bad.size + 2);
    const list = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Download the list' }).click();
    assert.equal((await list).suggestedFilename(), 'lines.ndjson.refused.ndjson');
  } finally {
    await http('DELETE', name);
  }
});

flow('a view is created, queried, grouped and shown as a chart', `#/db/${db}/designs`, async (page) => {
  await page.getByRole('button', { name: 'New design document' }).click();
  await page.getByLabel('Name').fill('made');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByText('New function', { exact: true }).waitFor();
  await page.getByLabel('Name').fill('by_state');
  await page.getByRole('button', { name: 'Add' }).click();
  await editor(page, 'Map function of by_state').getByText('emit').waitFor();
  await retype(page, 'Map function of by_state', 'function (doc) { if (doc.state) emit(doc.state, doc.total); }');
  await page.getByLabel('Reduce by').selectOption('_sum');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('views/by_state is saved.').waitFor();
  await page.getByRole('link', { name: 'Rows' }).click();
  await page.getByRole('region', { name: 'Rows of the view' }).getByText('"open"').first().waitFor();
  await page.getByLabel('From key (JSON)').fill('"paid"');
  await page.getByRole('region', { name: 'Rows of the view' }).getByText('"paid"').first().waitFor();
  await page.getByRole('button', { name: 'Groups' }).click();
  await page.getByRole('cell', { name: '"sent"' }).waitFor();
  assert.equal(await page.getByRole('cell', { name: '"open"' }).count(), 0);
  await page.getByRole('button', { name: 'Chart' }).click();
  await page.locator('.plot canvas').waitFor();
  for (const part of ['show=chart', 'start="paid"']) await page.waitForURL((url) => decodeURIComponent(url.href).includes(part));
});

flow('a build is paused and resumed', `#/db/${db}/designs`, async (page) => {
  const card = page.locator('.card', { has: page.getByRole('link', { name: 'orders', exact: true }) });
  await card.getByRole('button', { name: 'Build of orders' }).click();
  await page.getByRole('button', { name: /Pause/ }).click();
  await card.getByText('paused', { exact: true }).waitFor();
  await card.getByRole('button', { name: 'Build of orders' }).click();
  await page.getByRole('button', { name: 'Resume' }).click();
  await card.getByText('current', { exact: true }).waitFor();
});

flow('the playground runs the functions after each key stroke', `#/db/${db}/playground`, async (page) => {
  await page.getByText('µs').first().waitFor();
  await retype(page, 'Map function', 'function (doc) { if (doc.type === "order") emit(doc.city, doc.total); }');
  await page.getByRole('cell', { name: '"Berlin"' }).first().waitFor();
  await page.getByText('runs natively').waitFor();
  await page.getByLabel('Reduce by').selectOption('_sum');
  await page.getByText('Reduction of all rows').waitFor();
  await retype(page, 'Map function', 'function (doc) { emit(new Proxy({}, {}) && eval("1"), null); log("seen"); }');
  await page.getByText(/runs in (?!native)/).waitFor();
  await page.getByText(/Not natively: \S/).waitFor();
  await page.getByText('seen').first().waitFor();
  await retype(page, 'Map function', 'function (doc) { emit(doc.none.member, 1); }');
  await page.getByText('Errors').waitFor();
  await retype(page, 'Map function', 'function (doc) {');
  await page.getByRole('alert').waitFor();
  await retype(page, 'Map function', 'function (doc) { if (doc.city) emit(doc.city, 1); }');
  await page.getByRole('button', { name: 'Save as a view' }).click();
  await page.getByLabel('Design document').fill('played');
  await page.getByLabel('View', { exact: true }).fill('cities');
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
  await page.getByRole('region', { name: 'Rows of the view' }).getByText('"Berlin"').first().waitFor();
});

flow('a query is run and explained, and the suggested index is created', `#/db/${db}/query`, async (page) => {
  await retype(page, 'Mango query', '{"selector": {"city": "Oslo", "total": {"$gt": 100}}, "limit": 10}');
  await page.getByRole('button', { name: 'Find' }).click();
  await page.getByText('10 documents').waitFor();
  await page.getByText('An index on').waitFor();
  await page.getByRole('button', { name: 'More' }).click();
  await page.getByText('20 documents').waitFor();
  await page.getByRole('button', { name: 'Create this index' }).click();
  await page.getByText('An index on city, total is created.').waitFor();
  await page.getByRole('button', { name: 'Plan' }).click();
  await page.locator('.plan').getByText('Index on city, total').waitFor();
  await page.reload();
  await page.locator('.plan').getByText('Index on city, total').waitFor();
});

flow('changes appear as they happen', `#/db/${db}/changes`, async (page) => {
  await page.getByRole('row', { name: /_design\/|order-|csv-|files|played/ }).first().waitFor();
  const id = freshName('live');
  await httpOk('PUT', `${db}/${id}`, orders(1)[0] && { state: 'paid' });
  const row = page.getByRole('row', { name: new RegExp(id) });
  await row.getByText('new').waitFor();
  await page.getByLabel('Filter').fill('orders/paid');
  await row.waitFor();
  await page.waitForURL(/filter=orders%2Fpaid/);
});

flow('permissions, the revision limit and maintenance', `#/db/${db}/settings`, async (page) => {
  await page.getByLabel('Users that are members').fill('anna');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Save permissions' }).click();
  await page.getByText('Permissions are saved.').waitFor();
  assert.deepEqual((await httpOk('GET', `${db}/_security`)).members.names, ['anna']);
  await page.getByLabel('Revision ids kept for each document').fill('500');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByText('The limit is saved.').waitFor();
  assert.equal(await httpOk('GET', `${db}/_revs_limit`), 500);
  await page.getByRole('button', { name: 'Compact' }).click();
  await page.getByText('Compaction is started.').waitFor();
  await page.getByLabel('Ids, one per line').fill('order-0000400');
  await page.getByRole('button', { name: 'Purge …' }).click();
  await page.getByLabel('Type purge to confirm').fill('purge');
  await page.getByRole('dialog').getByRole('button', { name: 'Purge' }).click();
  await page.getByText('Purged.').waitFor();
  assert.equal((await http('GET', `${db}/order-0000400`)).body.reason, 'missing');
});

flow('the palette opens a document with the keyboard only', '#/databases', async (page) => {
  await page.getByRole('heading', { name: 'Databases' }).waitFor();
  await page.keyboard.press('Control+k');
  await page.keyboard.type(db);
  await page.getByRole('option', { name: db }).waitFor();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: db }).waitFor();
  await page.keyboard.press('Control+k');
  await page.keyboard.type('order-0000123');
  await page.getByRole('option', { name: /order-0000123/ }).first().waitFor();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'order-0000123' }).waitFor();
});

flow('requests are copied for other clients', `#/db/${db}/view/orders/by_city`, async (page) => {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  for (const [client, part] of [['curl', 'curl --user NAME'], ['PouchDB', 'db.query("orders/by_city"'], ['nano', 'db.view("orders", "by_city"']]) {
    await page.getByRole('button', { name: 'Copy as' }).click();
    await page.getByRole('button', { name: `Copy as ${client}` }).click();
    await page.getByText(`${client} copied.`).waitFor();
    assert.ok((await page.evaluate(() => navigator.clipboard.readText())).includes(part), client);
  }
});

flow('both kinds of search indexes find documents', '#/databases', async (page) => {
  const name = freshName('texts');
  await httpOk('PUT', name, {});
  try {
    await httpOk('PUT', `${name}/_design/texts`, {
      nouveau: { words: { index: "function(doc) { if (doc.t) index('text', 'default', doc.t, {store: true}); }" } },
      indexes: { words: { index: "function(doc) { if (doc.t) index('default', doc.t, {store: true}); }" } },
    });
    await httpOk('POST', `${name}/_bulk_docs`, { docs: [{ _id: 'one', t: 'a green sofa' }, { _id: 'two', t: 'a red armchair' }, { _id: 'three', t: 'green cushions' }] });
    await page.goto(page.url().replace(/#.*/, `#/db/${name}/search`));
    await page.getByLabel('Lucene query').fill('green AND NOT cushions');
    await page.getByRole('button', { name: 'Search', exact: true }).click();
    await page.getByText('1 document').waitFor();
    await page.getByRole('link', { name: 'one', exact: true }).waitFor();
    await page.getByLabel('Index', { exact: true }).selectOption('texts/_search/words');
    await page.getByLabel('Lucene query').fill('arm*');
    await page.getByRole('button', { name: 'Search', exact: true }).click();
    await page.getByRole('link', { name: 'two', exact: true }).waitFor();
    await httpOk('POST', `${name}/_bulk_docs`, { docs: Array.from({ length: 120 }, (_, index) => ({ _id: `stool-${index}`, t: 'a stool' })) });
    await page.getByLabel('Lucene query').fill('stool');
    await page.getByRole('button', { name: 'Search', exact: true }).click();
    await page.getByText('120 documents').waitFor();
    for (const shown of [100, 120]) {
      await page.getByRole('button', { name: 'More' }).click();
      await page.waitForFunction((count) => document.querySelectorAll('tbody tr').length === count, shown);
    }
    await page.getByRole('button', { name: 'More' }).waitFor({ state: 'detached' });
    await page.getByLabel('Lucene query').fill('(green');
    await page.getByRole('button', { name: 'Search', exact: true }).click();
    await page.getByText('Cannot parse').waitFor();
    // The refusal is expected.
    page.problems.splice(0);
  } finally {
    await http('DELETE', name);
  }
});
