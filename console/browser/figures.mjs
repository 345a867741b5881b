// Sizes and times of the console with much data: `node browser/figures.mjs`, with SETTEE_URL. Creates and deletes its databases.
import { createWriteStream, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CONSOLE, freshName, http, httpOk, launch, openPage, orders } from './support.mjs';

const DOCUMENTS = 200_000;
const DATABASES = 2000;
const LINES = 100_000;
const VISITS = 5;
const TIMEOUT = 300_000;

const folder = await mkdtemp(join(tmpdir(), 'settee-figures-'));
const browser = await launch();
const page = await openPage(browser);
page.setDefaultTimeout(TIMEOUT);
await page.getByRole('table').waitFor();

const report = (name, figures) => console.log(`${name}: ${Object.entries(figures).map(([key, value]) => `${key} ${value}`).join(', ')}`);
const median = (list) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)];
const timed = async (act) => {
  const start = Date.now();
  await act();
  return Date.now() - start;
};
const goTo = (hash) => page.evaluate((next) => { location.hash = next; }, hash);

async function firstPage() {
  const session = await page.context().newCDPSession(page);
  const times = [];
  for (let visit = 0; visit < VISITS; visit += 1) {
    await session.send('Network.clearBrowserCache');
    times.push(await timed(async () => {
      await page.goto(`${CONSOLE}?${visit}#/databases`);
      await page.getByRole('table').waitFor();
    }));
  }
  const files = await page.evaluate(() => performance.getEntries().filter(({ name, encodedBodySize }) => name.includes('/_utils/') && encodedBodySize > 0).map(({ encodedBodySize }) => encodedBodySize));
  report('first page', { ms: median(times), bytes: files.reduce((sum, size) => sum + size, 0), files: files.length });
}

async function fill(name) {
  await httpOk('PUT', name, {});
  for (let from = 0; from < DOCUMENTS; from += 10_000) await httpOk('POST', `${name}/_bulk_docs`, { docs: orders(Math.min(10_000, DOCUMENTS - from), from) });
}

async function list(name) {
  const rows = page.getByRole('region', { name: 'Documents' });
  const first = await timed(async () => {
    await goTo(`#/db/${name}`);
    await rows.getByRole('link', { name: 'order-0000000' }).waitFor();
  });
  const idle = () => page.waitForFunction(() => !document.querySelector('.list-foot')?.textContent.includes('loading'));
  const steps = [];
  for (let press = 0; press < 40; press += 1) {
    await rows.focus();
    steps.push(await timed(async () => {
      await page.keyboard.press('End');
      await idle();
    }));
  }
  const last = await timed(async () => {
    await page.getByRole('button', { name: 'Descending' }).click();
    await rows.getByRole('link', { name: `order-${String(DOCUMENTS - 1).padStart(7, '0')}` }).waitFor();
  });
  report(`list of ${DOCUMENTS} documents`, { 'first rows ms': first, 'End ms': median(steps), 'slowest End ms': Math.max(...steps), 'last rows ms': last });
}

async function exported(name) {
  const chosen = `#/db/${name}?q=${encodeURIComponent('order-00')}`;
  await goTo(chosen);
  await page.getByRole('region', { name: 'Documents' }).getByRole('link', { name: 'order-0000000' }).waitFor();
  await page.getByRole('button', { name: 'Export', exact: true }).click();
  const path = join(folder, 'export.ndjson');
  const ms = await timed(async () => {
    const download = page.waitForEvent('download', { timeout: TIMEOUT });
    await page.getByRole('button', { name: 'Export as NDJSON' }).click();
    await (await download).saveAs(path);
  });
  report(`export of ${LINES} documents`, { ms, bytes: statSync(path).size });
}

async function imported() {
  const path = join(folder, 'import.ndjson');
  const file = createWriteStream(path);
  for (let from = 0; from < LINES; from += 10_000) file.write(`${orders(10_000, from).map((doc) => JSON.stringify(doc)).join('\n')}\n`);
  await new Promise((resolve) => file.end(resolve));
  const name = freshName('figures-import');
  await httpOk('PUT', name, {});
  await goTo(`#/db/${name}/upload`);
  const chooser = page.waitForEvent('filechooser');
  await page.getByRole('button', { name: 'Choose a file' }).click();
  const count = LINES.toLocaleString('en');
  const read = await timed(async () => {
    await (await chooser).setFiles(path);
    await page.getByRole('button', { name: `Save ${count}` }).waitFor();
  });
  const saved = await timed(async () => {
    await page.getByRole('button', { name: `Save ${count}` }).click();
    await page.getByText(`${count} saved, 0 refused`).first().waitFor();
  });
  report(`import of ${LINES} lines`, { bytes: statSync(path).size, 'preview ms': read, 'save ms': saved, stored: (await httpOk('GET', name)).doc_count });
  await http('DELETE', name);
}

async function databases() {
  const prefix = freshName('figures-many');
  const names = Array.from({ length: DATABASES }, (_, index) => `${prefix}-${String(index).padStart(4, '0')}`);
  for (let from = 0; from < DATABASES; from += 50) await Promise.all(names.slice(from, from + 50).map((name) => httpOk('PUT', name, {})));
  await goTo('#/servers');
  const shown = await timed(async () => {
    await goTo('#/databases');
    await page.getByRole('link', { name: names[0], exact: true }).waitFor();
  });
  const sorted = await timed(async () => {
    await page.getByRole('button', { name: 'On disk' }).click();
    await page.locator('th[aria-sort="descending"]').waitFor();
    await page.waitForFunction(() => !document.querySelector('h1 ~ .note, [role="status"]')?.textContent.includes('read for the sort'));
  });
  const found = await timed(async () => {
    await page.getByLabel('Databases whose names begin with').fill(names.at(-1));
    await page.getByRole('link', { name: names.at(-1), exact: true }).waitFor();
  });
  report(`${DATABASES} databases`, { 'shown ms': shown, 'sorted by size ms': sorted, 'found ms': found });
  for (let from = 0; from < DATABASES; from += 50) await Promise.all(names.slice(from, from + 50).map((name) => http('DELETE', name)));
}

const name = freshName('figures');
try {
  await firstPage();
  await fill(name);
  await list(name);
  await exported(name);
  await imported();
  await databases();
} finally {
  await browser.close();
  await http('DELETE', name);
  await rm(folder, { recursive: true, force: true });
}
