// The console in Firefox. These tests are skipped if Firefox is not installed; FIREFOX is the path of its program.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { FIREFOX, launchFirefox, until } from './firefox.mjs';
import { pages } from './pages.mjs';
import { CONSOLE, NAME, PASSWORD, freshName, http, httpOk, seed } from './support.mjs';

const skip = FIREFOX === undefined && 'Firefox is not installed';
const db = freshName('firefox');
let firefox;

/** Finds elements in the document and in open shadow roots. */
const FIND = `
  const find = (selector, root = document) => {
    for (const each of selector.split(',')) {
      const found = deep(each.trim().split(' '), root);
      if (found) return found;
    }
  };
  const deep = ([first, ...rest], root) => {
    if (first === undefined) return root;
    for (const found of [...root.querySelectorAll(first)]) {
      const inner = deep(rest, found);
      if (inner) return inner;
    }
    for (const host of [root, ...root.querySelectorAll('*')]) {
      const inner = host.shadowRoot && deep([first, ...rest], host.shadowRoot);
      if (inner) return inner;
    }
  };
`;

/** Collects exceptions, files that are not loaded, and violations of the content security policy in an attribute. */
const WATCH = `
  const root = document.documentElement;
  const note = (text) => { root.dataset.problems = (root.dataset.problems ?? '') + text + '\\n'; };
  // Firefox reports the preload of a module that is already loaded as an error.
  addEventListener('error', (event) => { if (event.target.rel !== 'modulepreload') note(event.message || 'not loaded: ' + (event.target.outerHTML ?? '')); }, true);
  addEventListener('unhandledrejection', (event) => note(String(event.reason)));
  document.addEventListener('securitypolicyviolation', (event) => note(event.violatedDirective + ' ' + event.blockedURI));
`;

before(async () => {
  if (skip) return;
  for (const name of ['_users', '_replicator']) await http('PUT', name, {});
  await seed(db, 200);
  firefox = await launchFirefox();
});
after(async () => {
  await firefox?.stop();
  if (!skip) await http('DELETE', db);
});

const element = async (selector) => Object.values((await firefox.send('WebDriver:FindElement', { using: 'css selector', value: selector })).value)[0];
const type = async (selector, text) => firefox.send('WebDriver:ElementSendKeys', { id: await element(selector), text });
const problems = () => firefox.run('return document.documentElement.dataset.problems ?? ""');

async function goTo(hash, ready) {
  await firefox.run('location.hash = arguments[0]', hash);
  await until(firefox, `${ready} at ${hash}`, `${FIND} return Boolean(find(arguments[0])) && !document.querySelector('.skeleton')`, ready);
}

test('Firefox: a session is opened in the form', { skip, timeout: 120_000 }, async () => {
  await firefox.send('WebDriver:Navigate', { url: `${CONSOLE}#/login` });
  await firefox.run(WATCH);
  await until(firefox, 'the form', 'return Boolean(document.querySelector("form input[type=password]"))');
  await type('form input:not([type=password])', NAME);
  await type('form input[type=password]', PASSWORD);
  await firefox.send('WebDriver:ElementClick', { id: await element('form button[type=submit]') });
  await until(firefox, 'the list of databases', 'return Boolean(document.querySelector("main table"))');
  assert.equal(await problems(), '');
});

for (const theme of ['light', 'dark']) {
  test(`Firefox: every page opens without an error, ${theme}`, { skip, timeout: 240_000 }, async () => {
    await firefox.run('document.querySelector(`header button[aria-label^="${arguments[0]} colours"]`)?.click()', theme === 'dark' ? 'Dark' : 'Light');
    const wide = [];
    for (const [name, address, ready] of pages(db)) {
      if (name === 'login') continue;
      await goTo(address, ready);
      if (await firefox.run('return document.documentElement.scrollWidth > innerWidth || document.querySelector("main").scrollWidth > document.querySelector("main").clientWidth')) wide.push(name);
    }
    assert.deepEqual(wide, []);
    assert.equal(await problems(), '');
    assert.equal(await firefox.run('return document.documentElement.dataset.theme ?? "light"'), theme);
  });
}

test('Firefox: a document is edited with the keyboard and saved', { skip, timeout: 60_000 }, async () => {
  await goTo(`#/db/${db}/doc/exact`, '.editor-host .cm-content');
  await firefox.run(`${FIND} find('.editor-host .cm-content').focus()`);
  const keys = [...'{"_id": "exact", "typed": 1.50'].flatMap((value) => [{ type: 'keyDown', value }, { type: 'keyUp', value }]);
  const CONTROL = '\uE009';
  const chord = (value) => [{ type: 'keyDown', value: CONTROL }, { type: 'keyDown', value }, { type: 'keyUp', value }, { type: 'keyUp', value: CONTROL }];
  const rev = (await httpOk('GET', `${db}/exact`))._rev;
  const more = [...`, "_rev": "${rev}`].flatMap((value) => [{ type: 'keyDown', value }, { type: 'keyUp', value }]);
  await firefox.send('WebDriver:PerformActions', { actions: [{ type: 'key', id: 'keys', actions: [...chord('a'), ...keys, ...more, ...chord('s')] }] });
  await until(firefox, 'the save', 'return document.querySelector(".toast")?.textContent.includes("Saved as 2-")');
  assert.ok((await http('GET', `${db}/exact`)).text.includes('"typed":1.50'));
  assert.equal(await problems(), '');
});
