// The walk-through of the documentation: its commands are executed unchanged except for the ports, and its page is used in two browsers.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { test } from 'node:test';
import { launch, watch } from './support.mjs';

const BINARY = process.env.SETTEE_BINARY;
const DOCS = process.env.SETTEE_DOCS;

function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** Returns the commands of the page with other ports. */
function commands(ports) {
  const page = readFileSync(join(DOCS, 'walkthrough.md'), 'utf8');
  const blocks = [...page.matchAll(/^```sh walkthrough\n(.*?)^```$/gms)].map(([, block]) => block);
  assert.equal(blocks.length, 3);
  return ports.reduce((text, [from, to]) => text.replaceAll(from, String(to)), blocks.join(''));
}

/** Runs a script. `ended` resolves after its last line; processes that it started continue. */
function run(script, folder) {
  const env = { ...process.env, PATH: `${dirname(BINARY)}${delimiter}${process.env.PATH}`, HOME: folder, npm_config_cache: process.env.npm_config_cache ?? join(process.env.HOME, '.npm'), npm_config_prefer_offline: 'true' };
  delete env.SETTEE_DATA;
  const child = spawn('bash', ['-c', `set -euo pipefail\n${script}\necho; echo the end\nwait`], { cwd: folder, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  let log = '';
  const ended = new Promise((resolve, reject) => {
    const collect = (chunk) => {
      log += chunk;
      if (log.includes('the end\n')) resolve();
    };
    child.stdout.setEncoding('utf8').on('data', collect);
    child.stderr.setEncoding('utf8').on('data', collect);
    child.once('exit', (code) => reject(new Error(`the script ended with ${code}: ${log}`)));
  });
  return { child, ended };
}

function stop(child) {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) {
      resolve();
      return;
    }
    child.once('exit', resolve);
    process.kill(-child.pid, 'SIGTERM');
  });
}

test('the page of the walk-through synchronises two browsers', { timeout: 180_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'settee-walkthrough-'));
  const [couch, pages] = [await freePort(), await freePort()];
  const script = commands([['5984', couch], ['8000', pages]]);
  const { child, ended } = run(script, folder);
  const browsers = [];
  try {
    await ended;
    const open = async () => {
      const browser = await launch();
      browsers.push(browser);
      const page = watch(await browser.newPage());
      page.setDefaultTimeout(30_000);
      await page.goto(`http://127.0.0.1:${pages}/`);
      return page;
    };
    const [one, other] = [await open(), await open()];
    const add = async (page, text) => {
      await page.getByLabel('A note').fill(text);
      await page.keyboard.press('Enter');
      await page.getByRole('listitem').filter({ hasText: text }).waitFor();
    };
    const appears = (page, text) => page.getByRole('listitem').filter({ hasText: text }).waitFor();
    await add(one, 'from one');
    await appears(other, 'from one');
    await add(other, 'from the other');
    await appears(one, 'from the other');
    // The notes are in the server's database, which only its members may read.
    const rows = await fetch(`http://127.0.0.1:${couch}/notes/_all_docs`, { headers: { authorization: `Basic ${btoa('ann:pw')}` } });
    assert.equal((await rows.json()).total_rows, 2);
    assert.equal((await fetch(`http://127.0.0.1:${couch}/notes`)).status, 401);
    // Without a connection notes are stored in the browser, and transferred later.
    await one.context().setOffline(true);
    await add(one, 'offline');
    await one.context().setOffline(false);
    await appears(other, 'offline');
    assert.deepEqual([one, other].flatMap((page) => page.problems.filter((problem) => !/ERR_INTERNET_DISCONNECTED/.test(problem))), []);
  } finally {
    await Promise.all(browsers.map((browser) => browser.close()));
    await stop(child);
    rmSync(folder, { recursive: true, force: true });
  }
});
