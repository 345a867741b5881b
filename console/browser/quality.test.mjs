// Properties of every page: keyboard, widths, and a slow network.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { CONSOLE, freshName, http, launch, openPage, seed } from './support.mjs';
import { pages } from './pages.mjs';

let browser;
const db = freshName('quality');

before(async () => {
  browser = await launch();
  for (const name of ['_users', '_replicator']) await http('PUT', name, {});
  await seed(db, 200);
});
after(async () => {
  await browser?.close();
  await http('DELETE', db);
});

/** Maximum number of key presses per page; no page has more focusable elements. */
const PRESSES_MAX = 400;
const BATCH = 20;

/** Records the elements that receive the focus, and those without a visible focus indicator. */
function watchFocus() {
  globalThis.focusSeen = { reached: new Set(), unmarked: [], isRound: false };
  // Tab indents in an editor; another test covers leaving an editor.
  const isEditor = (event) => event.composedPath().some((element) => element.classList?.contains('cm-content'));
  addEventListener('keydown', (event) => { if (isEditor(event)) event.stopImmediatePropagation(); }, { capture: true });
  addEventListener('focusin', ({ target }) => {
    const seen = globalThis.focusSeen;
    if (target === seen.first && seen.reached.size > 1) seen.isRound = true;
    if (seen.reached.has(target)) return;
    seen.reached.add(target);
    seen.first ??= target;
    const isMarked = (element) => {
      const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(element);
      return (outlineStyle !== 'none' && parseFloat(outlineWidth) > 0) || boxShadow !== 'none';
    };
    const box = target.closest('.editor, .virtual, .palette') ?? target;
    if (!isMarked(target) && !isMarked(box)) seen.unmarked.push(target.outerHTML.slice(0, 120));
  });
}

/** Returns the controls that Tab did not reach and those without a visible focus indicator. */
async function unreachable(page) {
  await page.evaluate(() => {
    document.activeElement?.blur();
    globalThis.focusSeen = { reached: new Set(), unmarked: [], isRound: false };
  });
  for (let pressed = 0; pressed < PRESSES_MAX; pressed += BATCH) {
    await Promise.all(Array.from({ length: BATCH }, () => page.keyboard.press('Tab')));
    if (await page.evaluate(() => globalThis.focusSeen.isRound)) break;
  }
  return page.evaluate(() => {
    const { reached, unmarked } = globalThis.focusSeen;
    const scope = document.querySelector('dialog[open]') ?? document;
    const all = [...scope.querySelectorAll('a[href], button, input, select, textarea, [tabindex="0"]')];
    const missed = all.filter((element) => element.tabIndex >= 0 && !element.disabled && element.checkVisibility({ visibilityProperty: true }) && element.type !== 'file'
      && !element.closest('[inert]') && !reached.has(element));
    return { missed: missed.map((element) => element.outerHTML.slice(0, 120)), unmarked };
  });
}

test('Tab reaches every control of every page, and the focus is visible', { timeout: 400_000 }, async () => {
  const page = await openPage(browser);
  await page.evaluate(watchFocus);
  const found = {};
  for (const [name, address, ready] of pages(db)) {
    await page.evaluate((hash) => { location.hash = hash; }, address);
    await page.locator(ready).first().waitFor();
    await page.waitForFunction(() => !document.querySelector('.skeleton'));
    const first = await unreachable(page);
    // Controls that appear during the first round are reached in the second one.
    const { missed, unmarked } = first.missed.length === 0 ? first : await unreachable(page);
    if (missed.length + unmarked.length > 0) found[name] = { missed, unmarked };
  }
  assert.deepEqual(found, {});
  await page.context().close();
});

test('the editor of a document fills the page', { timeout: 60_000 }, async () => {
  const page = await openPage(browser, { start: `#/db/${db}/doc/exact` });
  await page.locator('.cm-content').waitFor();
  const [editor, area, main] = await Promise.all(['.editor', '.doc-area', 'main'].map((selector) => page.locator(selector).first().boundingBox()));
  assert.equal(editor.width, area.width);
  assert.ok(main.y + main.height - editor.y - editor.height < 40, JSON.stringify({ editor, main }));
  await page.context().close();
});

test('Escape, then Tab leaves an editor', { timeout: 60_000 }, async () => {
  const page = await openPage(browser, { start: `#/db/${db}/doc/exact` });
  const editor = page.locator('.cm-content');
  await editor.focus();
  await page.keyboard.press('Tab');
  const isFocused = () => editor.evaluate((element) => element === element.getRootNode().activeElement);
  assert.ok(await isFocused(), 'Tab indents');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Tab');
  assert.ok(!await isFocused(), 'the focus leaves');
  await page.context().close();
});

test('no page is wider than the screen: phone, tablet, 1400 and 2560 pixels', { timeout: 240_000 }, async () => {
  const page = await openPage(browser);
  const found = [];
  for (const [name, address, ready] of pages(db)) {
    await page.evaluate((hash) => { location.hash = hash; }, address);
    await page.locator(ready).first().waitFor();
    for (const width of [360, 768, 1400, 2560]) {
      await page.setViewportSize({ width, height: 900 });
      const excess = await page.evaluate(() => Math.max(document.documentElement.scrollWidth, document.querySelector('main')?.scrollWidth ?? 0) - Math.max(innerWidth, document.querySelector('main')?.clientWidth ?? 0));
      if (excess > 0) found.push(`${name} ${width}: ${excess}`);
      const hidden = await page.evaluate(() => [...document.querySelectorAll('.tabs')].some((tabs) => tabs.scrollWidth > tabs.clientWidth));
      if (hidden) found.push(`${name} ${width}: tabs are hidden`);
    }
  }
  assert.deepEqual(found, []);
  await page.context().close();
});

test('with 800 ms of latency and 50 kB/s every page shows a skeleton, then its content', { timeout: 300_000 }, async () => {
  const page = await openPage(browser, { start: '#/databases' });
  await page.getByRole('table').waitFor();
  const session = await page.context().newCDPSession(page);
  await session.send('Network.enable');
  await session.send('Network.clearBrowserCache');
  await session.send('Network.emulateNetworkConditions', { offline: false, latency: 800, downloadThroughput: 50_000, uploadThroughput: 50_000 });
  page.setDefaultTimeout(40_000);
  const began = Date.now();
  await page.goto(`${CONSOLE}?slow#/databases`, { waitUntil: 'commit' });
  await page.locator('.skeleton').first().waitFor();
  const skeleton = Date.now() - began;
  await page.getByRole('row', { name: db }).waitFor();
  console.log(`slow network: skeleton after ${skeleton} ms, the databases after ${Date.now() - began} ms`);
  assert.ok(Date.now() - began < 15_000, `${Date.now() - began}`);
  const chosen = ['documents', 'document', 'designs', 'query', 'changes', 'dashboard', 'users', 'config', 'server', 'logs', 'backups'];
  for (const [name, address, ready] of pages(db).filter(([name]) => chosen.includes(name))) {
    const before = Date.now();
    await page.evaluate((hash) => { location.hash = hash; }, address);
    await page.locator('main .skeleton, main .editor-plain, main [aria-busy="true"]').or(page.locator(ready)).first().waitFor({ timeout: 500 });
    await page.locator(ready).first().waitFor();
    console.log(`slow network: ${name} after ${Date.now() - before} ms`);
  }
  assert.deepEqual(page.problems, []);
  await page.context().close();
});
