// The console in a browser: Chromium, driven over a pipe by its own protocol. Without a `chromium` these tests are left out.
'use strict';

const assert = require('node:assert/strict');
const { spawn, spawnSync } = require('node:child_process');
const { once } = require('node:events');

const { SERVER, freshName, http, scratchDirectory, suite, within } = require('./support.js');

const CHROMIUM = process.env.CHROMIUM ?? 'chromium';
const present = spawnSync(CHROMIUM, ['--version']).status === 0;
if (!present) console.log('there is no chromium: the console is not tested');
const test = present ? suite({}, 60_000) : () => {};

const { origin, username, password } = new URL(SERVER);

// A browser with one page. `problems` fills with what the page should not do: exceptions, and loads that its policy refuses.
class Browser {
  static async start(t) {
    const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking'];
    const data = `--user-data-dir=${scratchDirectory()}`;
    const child = spawn(CHROMIUM, [...flags, data, '--remote-debugging-pipe'], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
    t.after(async () => {
      child.kill('SIGKILL');
      await once(child, 'exit');
    });
    const browser = new Browser(child.stdio[3], child.stdio[4]);
    const { targetId } = await browser.call('Target.createTarget', { url: 'about:blank' });
    browser.session = (await browser.call('Target.attachToTarget', { targetId, flatten: true })).sessionId;
    for (const part of ['Page', 'Runtime', 'Log']) await browser.call(`${part}.enable`);
    return browser;
  }

  constructor(input, output) {
    Object.assign(this, { input, calls: new Map(), count: 0, problems: [], loaded: () => {} });
    let text = '';
    output.setEncoding('utf8').on('data', (piece) => {
      const messages = (text + piece).split('\0');
      text = messages.pop();
      for (const message of messages) this.take(JSON.parse(message));
    });
  }

  take({ id, method, params, result, error }) {
    if (id !== undefined) {
      const { resolve, reject } = this.calls.get(id);
      if (error) reject(new Error(error.message)); else resolve(result);
    } else if (method === 'Page.loadEventFired') {
      this.loaded();
    } else if (method === 'Runtime.exceptionThrown') {
      this.problems.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    } else if (method === 'Log.entryAdded' && params.entry.source === 'security') {
      this.problems.push(params.entry.text);
    }
  }

  call(method, params = {}) {
    const id = ++this.count;
    this.input.write(`${JSON.stringify({ id, method, params, sessionId: this.session })}\0`);
    return within(new Promise((resolve, reject) => this.calls.set(id, { resolve, reject })), method);
  }

  async open(url) {
    const loaded = new Promise((resolve) => { this.loaded = resolve; });
    await this.call('Page.navigate', { url });
    await within(loaded, url);
  }

  async read(expression) {
    const { result, exceptionDetails } = await this.call('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
    assert.equal(exceptionDetails, undefined, `${expression}: ${exceptionDetails?.exception?.description}`);
    return result.value;
  }

  // Until an expression holds, looked at with every frame.
  async until(expression) {
    try {
      await this.read(`new Promise((done) => { const look = () => (${expression}) ? done() : requestAnimationFrame(look); look(); })`);
    } catch (error) {
      throw new Error(`${error.message} (${expression})\n${await this.read('document.body.innerText')}`);
    }
  }

  // Until the page has this heading.
  heading(text) {
    return this.until(`document.querySelector('h1').textContent === ${JSON.stringify(text)}`);
  }

  async type(text) {
    await this.call('Input.insertText', { text });
  }

  async press(key, code, text) {
    const stroke = { key, code: key, windowsVirtualKeyCode: code, text };
    await this.call('Input.dispatchKeyEvent', { type: 'keyDown', ...stroke });
    await this.call('Input.dispatchKeyEvent', { type: 'keyUp', ...stroke });
  }

  // The text of what has the focus, as somebody hears it who uses the keyboard.
  focused() {
    return this.read('document.activeElement.name || document.activeElement.textContent');
  }

  async tabTo(name) {
    for (let steps = 0; steps < 60; steps += 1) {
      if (await this.focused() === name) return;
      await this.press('Tab', 9);
    }
    assert.fail(`the keyboard does not reach ${name}`);
  }

  enter() {
    return this.press('Enter', 13, '\r');
  }
}

async function signIn(browser) {
  await browser.open(`${origin}/_utils`);
  await browser.until("document.querySelector('#session input[name=password]')");
  await browser.tabTo('name');
  await browser.type(decodeURIComponent(username));
  await browser.press('Tab', 9);
  await browser.type(decodeURIComponent(password));
  await browser.enter();
  await browser.until("document.querySelector('#session').textContent.includes('Signed in as')");
}

test('with the keyboard: sign in, make a database, delete it, sign out', async (t) => {
  const browser = await Browser.start(t);
  const name = freshName('console');
  await browser.open(`${origin}/_utils`);
  assert.equal(await browser.read('location.pathname'), '/_utils/');
  await browser.until("document.querySelector('main').textContent.includes('The list is not shown: 401')");
  await signIn(browser);
  await browser.until("document.querySelector('main table')");
  await browser.read("document.querySelector('main').focus()");
  // The second field of this name belongs to the form that creates.
  await browser.tabTo('Open');
  await browser.press('Tab', 9);
  await browser.type(name);
  await browser.enter();
  await browser.heading(name);
  assert.equal((await http('GET', `${SERVER}/${name}`)).db_name, name);

  await browser.tabTo('Delete this database');
  await browser.enter();
  await browser.heading(`Delete ${name}?`);
  await browser.tabTo('name');
  await browser.type(name.slice(1));
  assert.equal(await browser.read("document.querySelector('main button').disabled"), true, 'that is not its name');
  await browser.read("document.querySelector('main input').value = ''");
  await browser.type(name);
  await browser.enter();
  await browser.heading('Databases');
  await assert.rejects(http('GET', `${SERVER}/${name}`), /404/);

  await browser.read("document.querySelector('.skip').focus()");
  await browser.tabTo('Sign out');
  await browser.enter();
  await browser.until("document.querySelector('#session input')");
  assert.deepEqual(browser.problems, []);
});

test('documents: their names and texts are no markup, and numbers stay', async (t) => {
  const browser = await Browser.start(t);
  const name = freshName('console');
  const id = '<img src=x onerror="document.title=1">/?#%&';
  await http('PUT', `${SERVER}/${name}`);
  await http('POST', `${SERVER}/${name}/_bulk_docs`, { docs: Array.from({ length: 120 }, (_, at) => ({ _id: `doc${String(at).padStart(3, '0')}` })) });
  await http('PUT', `${SERVER}/${name}/${encodeURIComponent(id)}`, { tag: '<b>"\\', list: [], deep: [{ a: {} }, 1] });
  await signIn(browser);
  await browser.read(`location.hash = '#/db/${name}'`);
  await browser.heading(name);
  assert.equal(await browser.read("document.querySelector('main td').textContent"), id);
  assert.equal(await browser.read("document.querySelectorAll('main tbody tr').length"), 50);
  assert.equal(await browser.read("document.querySelector('main img, main b')"), null);
  for (const last of ['doc098', 'doc119']) {
    await browser.read("[...document.querySelectorAll('main a')].find((link) => link.textContent === 'Next').click()");
    await browser.until(`[...document.querySelectorAll('main tr')].at(-1).textContent.startsWith('${last}')`);
  }

  await browser.read("history.go(-2)");
  await browser.until(`document.querySelector('main td').textContent === ${JSON.stringify(id)}`);
  await browser.read("document.querySelector('main td a').click()");
  await browser.heading(id);
  const shown = await browser.read("document.querySelector('textarea').value");
  assert.equal(JSON.parse(shown).tag, '<b>"\\');
  assert.ok(shown.includes('"list": [],\n  "deep": [\n    {\n      "a": {}\n    },\n    1\n  ]\n}'), shown);
  const edited = shown.replace('"tag"', '"big": 12345678901234567890.10, "tag"');
  await browser.read(`document.querySelector('textarea').value = ${JSON.stringify(edited)}`);
  await browser.read("document.querySelector('main form').requestSubmit()");
  await browser.until("document.querySelector('#status').textContent.startsWith('Saved as 2-')");
  assert.ok((await browser.read("document.querySelector('textarea').value")).includes('"big": 12345678901234567890.10'));
  // Who saves what somebody else has changed since is told.
  await browser.read(`document.querySelector('textarea').value = ${JSON.stringify(edited)}`);
  await browser.read("document.querySelector('main form').requestSubmit()");
  await browser.until("document.querySelector('#status').textContent.includes('409 conflict')");
  assert.deepEqual(browser.problems, []);
});

test('views with their rows and times, tasks, replications', async (t) => {
  const browser = await Browser.start(t);
  const name = freshName('console');
  await http('PUT', `${SERVER}/${name}`);
  const docs = Array.from({ length: 24 }, (_, at) => ({ _id: `d${String(at).padStart(2, '0')}`, at }));
  await http('POST', `${SERVER}/${name}/_bulk_docs`, { docs });
  await http('PUT', `${SERVER}/${name}/_design/d`, { views: { v: { map: 'function (doc) { emit([doc.at % 3, doc.at], doc.at); }', reduce: '_sum' } } });
  await signIn(browser);
  await browser.read(`location.hash = '#/db/${name}'`);
  await browser.heading(name);
  await browser.read("[...document.querySelectorAll('main a')].find((link) => link.textContent === 'd/v').click()");
  await browser.heading('d/v');
  const rows = () => browser.read("[...document.querySelectorAll('main tbody tr')].map((row) => row.innerText.trim().replaceAll('\\t', ' '))");
  assert.match(await browser.read("document.querySelector('main').textContent"), /24 of 24 rows in [0-9.]+ ms/);
  assert.deepEqual((await rows()).slice(0, 2), ['[0,0] 0 d00', '[0,3] 3 d03']);
  await browser.read("document.querySelector('select').value = 'groups of level 1'; document.querySelector('input[name=start]').value = '[1]'");
  await browser.read("document.querySelector('main form').requestSubmit()");
  await browser.until("document.querySelectorAll('main tbody tr').length === 2");
  assert.deepEqual(await rows(), ['[1] 92', '[2] 100']);
  await browser.read("document.querySelector('input[name=start]').value = 'no JSON'; document.querySelector('main form').requestSubmit()");
  await browser.until("document.querySelector('main').textContent.includes('400 ')");
  for (const [page, heading] of [['tasks', 'Active tasks'], ['jobs', 'Replications'], ['db/none', 'Not shown'], ['none', 'Databases'], ['db/%', 'Not shown']]) {
    await browser.read(`location.hash = '#/${page}'`);
    await browser.heading(heading);
  }
  assert.deepEqual(browser.problems, []);
});
