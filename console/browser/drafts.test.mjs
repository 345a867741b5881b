// Drafts: unsaved text survives navigation, reloads, expired sessions and crashes.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { CONSOLE, NAME, PASSWORD, crash, flows, freshName, http, launch, launchWithProfile, login, httpOk, watch } from './support.mjs';

let browser;
const db = freshName('drafts');
const DESIGN = { views: { a: { map: 'function (doc) { emit(doc.a); }' }, b: { map: 'function (doc) { emit(doc.b); }', reduce: '_count' } }, filters: { f: 'function () { return true; }' } };

before(async () => {
  browser = await launch();
  for (const name of ['_users', '_replicator']) await http('PUT', name, {});
  await httpOk('PUT', db, {});
  await httpOk('POST', `${db}/_bulk_docs`, { docs: Array.from({ length: 20 }, (_, index) => ({ _id: `doc-${index}`, n: index })) });
  await httpOk('PUT', `${db}/_design/d`, DESIGN);
});
after(async () => {
  await browser?.close();
  await http('DELETE', db);
});

const flow = flows(() => browser);
const editor = (page, label) => page.locator(`[data-editor="${label}"] .cm-content`);
const RESTORED = /^Restored an unsaved draft/;

/** Types at the end of the first line that contains `mark`. */
async function type(page, label, mark, text) {
  await editor(page, label).getByText(mark).first().click();
  await page.keyboard.press('End');
  await page.keyboard.type(text);
}

const goTo = (page, hash) => page.evaluate((next) => { location.hash = next; }, hash);

flow('tab changes within a document keep the text', `#/db/${db}/doc/doc-0`, async (page) => {
  await type(page, 'JSON of doc-0', '"_rev"', ' "typed": 1,');
  for (const tab of ['Revisions', 'Attachments', 'Conflicts']) {
    await page.getByRole('link', { name: tab }).click();
    await page.locator('[data-editor="JSON of doc-0"]').waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'Document', exact: true }).click();
    await editor(page, 'JSON of doc-0').getByText('"typed": 1,').waitFor();
  }
  await page.getByText('not saved').waitFor();
  await page.keyboard.press('Control+s');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved as 2-').waitFor();
  await page.getByText('not saved').waitFor({ state: 'detached' });
  assert.equal((await httpOk('GET', `${db}/doc-0`)).typed, 1);
});

flow('switching between functions of a design document keeps the text', `#/db/${db}/design/d?part=views%2Fa`, async (page) => {
  await type(page, 'Map function of a', 'emit', ' // typed');
  await page.getByRole('link', { name: 'views/b' }).click();
  await editor(page, 'Map function of b').getByText('doc.b').waitFor();
  await page.getByLabel('Reduce by').selectOption('_sum');
  await page.getByRole('link', { name: 'views/a' }).click();
  await editor(page, 'Map function of a').getByText('// typed').waitFor();
  await page.getByText(RESTORED).waitFor();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('views/a is saved.').waitFor();
  await page.getByRole('link', { name: 'views/b' }).click();
  await editor(page, 'Map function of b').getByText('doc.b').waitFor();
  assert.equal(await page.getByLabel('Reduce by').inputValue(), '_sum');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('views/b is saved.').waitFor();
  const { views } = await httpOk('GET', `${db}/_design/d`);
  assert.ok(views.a.map.endsWith('// typed') && views.b.reduce === '_sum', JSON.stringify(views));
});

flow('navigation to another page, Back and a reload keep the text', `#/db/${db}/doc/doc-1`, async (page) => {
  await type(page, 'JSON of doc-1', '"_rev"', ' "typed": 1,');
  await page.getByRole('link', { name: 'Databases' }).first().click();
  await page.getByRole('heading', { name: 'Databases' }).waitFor();
  await page.goBack();
  await editor(page, 'JSON of doc-1').getByText('"typed": 1,').waitFor();
  await page.getByText(RESTORED).waitFor();
  await type(page, 'JSON of doc-1', '"typed": 1,', ' "later": 2,');
  await page.reload();
  await editor(page, 'JSON of doc-1').getByText('"later": 2,').waitFor();
  await page.getByRole('button', { name: 'Discard the draft' }).click();
  await editor(page, 'JSON of doc-1').getByText('"typed": 1,').waitFor({ state: 'detached' });
  await page.reload();
  await editor(page, 'JSON of doc-1').getByText('"n": 1').waitFor();
  assert.equal(await page.getByText(RESTORED).count(), 0);
});

/** Delays the next PUT request until `release` is called. `seen` resolves when the request is sent. */
async function delayedWrite(page, pattern) {
  let release;
  let reportSeen;
  const gate = new Promise((resolve) => { release = resolve; });
  const seen = new Promise((resolve) => { reportSeen = resolve; });
  await page.route(pattern, async (route) => {
    if (route.request().method() !== 'PUT') return route.fallback();
    reportSeen();
    await gate;
    await route.continue();
    await page.unroute(pattern);
  });
  return { seen, release };
}

for (const [where, leaves] of [['in the editor', false], ['in another tab of the page', true]]) {
  flow(`text typed during a save is kept and marked as not saved: ${where}`, `#/db/${db}/doc/doc-${leaves ? 3 : 2}`, async (page) => {
    const id = `doc-${leaves ? 3 : 2}`;
    const save = await delayedWrite(page, new RegExp(`/${db}/${id}$`));
    await type(page, `JSON of ${id}`, '"_rev"', ' "first": 1,');
    await page.keyboard.press('Control+s');
    await save.seen;
    await page.keyboard.type(' "second": 2,');
    if (leaves) await page.getByRole('link', { name: 'Revisions' }).click();
    save.release();
    await page.getByText(/^Saved as 2-.*without your later changes/).waitFor();
    if (leaves) await page.getByRole('link', { name: 'Document', exact: true }).click();
    await editor(page, `JSON of ${id}`).getByText('"second": 2,').waitFor();
    await page.getByText('not saved').waitFor();
    const stored = await httpOk('GET', `${db}/${id}`);
    assert.deepEqual([stored.first, stored.second], [1, undefined]);
    // The remaining draft is based on the new revision and can be saved.
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await page.getByText(/^Saved as 3-\w+\.$/).waitFor();
    await page.getByText('not saved').waitFor({ state: 'detached' });
    assert.equal((await httpOk('GET', `${db}/${id}`)).second, 2);
  });
}

flow('text typed during the save of a function is kept', `#/db/${db}/design/d?part=filters%2Ff`, async (page) => {
  const save = await delayedWrite(page, new RegExp(`/${db}/_design/d$`));
  await type(page, 'filters/f', 'return', ' // first');
  await page.keyboard.press('Control+s');
  await save.seen;
  await page.keyboard.type(' // second');
  save.release();
  await page.getByText('without your later changes').waitFor();
  await editor(page, 'filters/f').getByText('// second').waitFor();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByText(/^filters\/f is saved\.$/).waitFor();
  assert.ok((await httpOk('GET', `${db}/_design/d`)).filters.f.endsWith('// first // second'));
});

flow('text typed during the creation of a document is kept', `#/db/${db}/new`, async (page) => {
  await editor(page, 'JSON of the new document').getByText('"_id"').waitFor();
  const id = freshName('made');
  await editor(page, 'JSON of the new document').click();
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText(`{"_id": "${id}", "a": 1}`);
  const save = await delayedWrite(page, new RegExp(`/${db}/${id}$`));
  await page.keyboard.press('Control+s');
  await save.seen;
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.type(', "b": 2');
  save.release();
  await editor(page, `JSON of ${id}`).getByText('"b": 2').waitFor();
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByText('Saved as 2-').waitFor();
  assert.equal((await httpOk('GET', `${db}/${id}`)).b, 2);
});

for (const [id, how] of [['doc-4', 'the dialog opens automatically'], ['doc-5', 'the button of the header']]) {
  flow(`login after the session has expired keeps the text: ${how}`, `#/db/${db}/doc/${id}`, async (page) => {
    await type(page, `JSON of ${id}`, '"_rev"', ' "typed": 1,');
    await page.context().clearCookies();
    await page.keyboard.press('Control+s');
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Your session has expired').waitFor();
    if (how.startsWith('the button')) {
      await dialog.getByRole('button', { name: 'Not now' }).click();
      await editor(page, `JSON of ${id}`).getByText('"typed": 1,').waitFor();
      await page.getByRole('button', { name: 'Log in' }).click();
    }
    assert.equal(await dialog.getByLabel('Name').inputValue(), NAME);
    await dialog.getByLabel('Password').fill('wrong');
    await dialog.getByRole('button', { name: 'Log in' }).click();
    await dialog.getByText('Name or password is wrong.').waitFor();
    await dialog.getByLabel('Password').fill(PASSWORD);
    await page.keyboard.press('Enter');
    await dialog.waitFor({ state: 'detached' });
    await editor(page, `JSON of ${id}`).getByText('"typed": 1,').waitFor();
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await page.getByText('Saved as 2-').waitFor();
    assert.equal((await httpOk('GET', `${db}/${id}`)).typed, 1);
  });
}

test('after a crash of the browser the text is restored, and a conflict is shown', { timeout: 60_000 }, async () => {
  const profile = mkdtempSync(join(tmpdir(), 'settee-profile-'));
  try {
    const first = await launchWithProfile(profile);
    await login(first);
    const page = watch(await first.newPage());
    await page.goto(`${CONSOLE}#/db/${db}/doc/doc-6`);
    await type(page, 'JSON of doc-6', '"_rev"', ' "typed": 1,');
    await goTo(page, `#/db/${db}/doc/doc-7`);
    await type(page, 'JSON of doc-7', '"_rev"', ' "typed": 1,');
    // Waits until both drafts are committed to IndexedDB.
    await page.waitForFunction(async (text) => {
      const open = indexedDB.open('settee-drafts');
      const found = await new Promise((resolve) => { open.onsuccess = () => { const all = open.result.transaction('drafts').objectStore('drafts').getAll(); all.onsuccess = () => resolve(all.result); }; });
      return found.length === 2 && found.every((draft) => draft.text.includes(text));
    }, '"typed": 1,');
    await crash(first, profile);
    const doc = await httpOk('GET', `${db}/doc-7`);
    await httpOk('PUT', `${db}/doc-7`, { ...doc, n: 'theirs' });
    const second = await launchWithProfile(profile);
    await login(second);
    const again = watch(await second.newPage());
    await again.goto(`${CONSOLE}#/db/${db}/doc/doc-6`);
    await editor(again, 'JSON of doc-6').getByText('"typed": 1,').waitFor();
    await again.getByText(RESTORED).waitFor();
    await again.getByRole('button', { name: 'Save', exact: true }).click();
    await again.getByText('Saved as 2-').waitFor();
    await goTo(again, `#/db/${db}/doc/doc-7`);
    await again.getByText('The document has changed since you edited it').waitFor();
    await again.getByRole('button', { name: 'Compare' }).click();
    await again.locator('.diff').getByText('theirs').waitFor();
    await again.getByRole('button', { name: 'Take theirs' }).click();
    await editor(again, 'JSON of doc-7').getByText('theirs').waitFor();
    assert.deepEqual(again.problems, []);
    await second.close();
  } finally {
    rmSync(profile, { recursive: true, force: true });
  }
});

/** Fields and editors: name of the test, address, kind and label. */
const FIELDS = [
  ['new document', `#/db/${db}/new`, 'editor', 'JSON of the new document'],
  ['design function', `#/db/${db}/design/d?part=views%2Fb`, 'editor', 'Map function of b'],
  ['Mango query', `#/db/${db}/query`, 'editor', 'Mango query'],
  ['playground', `#/db/${db}/playground`, 'editor', 'Map function'],
  ['new function', `#/db/${db}/design/d?part=new`, 'field', 'Name'],
  ['configuration', '#/config?section=log', 'field', 'log file'],
  ['new key', '#/config?section=log&do=add', 'field', 'Value'],
  ['CORS', '#/config/cors', 'field', 'Origins'],
  ['new user', '#/users?do=create', 'field', 'Roles'],
  ['security, a name', `#/db/${db}/settings`, 'field', 'Users that are admins'],
  ['revision limit', `#/db/${db}/settings`, 'number', 'Revision ids kept for each document'],
  ['purge', `#/db/${db}/settings`, 'field', 'Ids, one per line'],
  ['replication, a database', '#/replication/new', 'field', 'Document id'],
];

for (const [name, hash, kind, label] of FIELDS) {
  flow(`unsaved text survives navigation and a reload: ${name}`, hash, async (page) => {
    const box = kind === 'editor' ? editor(page, label) : page.getByLabel(label, { exact: true }).first();
    const text = kind === 'number' ? '4321' : `typed${name.replaceAll(/\W/g, '')}`;
    const isThere = async () => {
      await box.waitFor();
      if (kind === 'editor') await box.getByText(text).first().waitFor();
      else await page.waitForFunction(([want, of]) => [...document.querySelectorAll('input, textarea')].some((each) => each.value === want && each.labels?.[0]?.textContent === of), [text, label]);
    };
    await box.waitFor();
    await page.waitForFunction(() => !document.querySelector('.skeleton'));
    if (kind === 'editor') {
      await box.click();
      await page.keyboard.press('Control+Home');
      await page.keyboard.type(`${text} `);
    } else await box.fill(text);
    await isThere();
    await goTo(page, '#/databases');
    await page.getByRole('heading', { name: 'Databases' }).waitFor();
    await goTo(page, hash);
    await isThere();
    await page.reload();
    await isThere();
    // No notice: the address of the playground contains the text, and the field of a name has none.
    if (!['security, a name', 'playground'].includes(name)) await page.getByText(RESTORED).first().waitFor();
    // The playground reports a syntax error in the typed text, which is expected.
    if (name === 'playground') page.problems.splice(0);
  });
}

flow('passwords are not stored in drafts', '#/users?do=create', async (page) => {
  await page.getByLabel('Password', { exact: true }).fill('do-not-keep-this');
  await page.getByLabel('Roles').fill('kept');
  await goTo(page, '#/replication/new');
  await page.getByRole('button', { name: 'Another server' }).first().click();
  await page.getByLabel('URL of the database').fill('https://u:do-not-keep-this@couch.example.com/db');
  assert.equal(await page.getByLabel('URL of the database').inputValue(), 'https://couch.example.com/db');
  assert.equal(await page.getByLabel('Password (from)').inputValue(), 'do-not-keep-this');
  await page.reload();
  await page.getByText(RESTORED).waitFor();
  assert.equal(await page.getByLabel('Password (from)').inputValue(), '');
  const kept = await page.evaluate(async () => {
    const open = indexedDB.open('settee-drafts');
    const drafts = await new Promise((resolve) => { open.onsuccess = () => { const all = open.result.transaction('drafts').objectStore('drafts').getAll(); all.onsuccess = () => resolve(all.result); }; });
    return JSON.stringify(drafts) + JSON.stringify({ ...localStorage });
  });
  assert.ok(kept.includes('couch.example.com') && !kept.includes('do-not-keep-this'), kept);
});
