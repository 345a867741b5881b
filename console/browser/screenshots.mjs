// Screenshots of every page in both themes: `node browser/screenshots.mjs DIRECTORY [page …]`. WIDTHS lists the widths in pixels.
import { mkdirSync } from 'node:fs';
import { pages } from './pages.mjs';
import { http, launch, httpOk, openPage, seed } from './support.mjs';

const [directory = '/tmp/console-pictures', ...only] = process.argv.slice(2);
const db = 'orders';

async function prepare() {
  if ((await http('GET', db)).status === 200) return;
  for (const name of ['_users', '_replicator', 'customers', 'inventory', 'sessions']) await http('PUT', name, {});
  await seed(db, 20_000);
  await httpOk('PUT', '_users/org.couchdb.user:anna', { _id: 'org.couchdb.user:anna', name: 'anna', password: 'secret', roles: ['sales', 'reports'], type: 'user' });
  await httpOk('PUT', '_users/org.couchdb.user:tariq', { _id: 'org.couchdb.user:tariq', name: 'tariq', password: 'secret', roles: [], type: 'user' });
  await httpOk('PUT', '_replicator/nightly', { source: `http://127.0.0.1:1/none`, target: 'http://127.0.0.1:1/none', continuous: true });
  await httpOk('PUT', `${db}/_security`, { admins: { names: [], roles: ['_admin'] }, members: { names: ['anna'], roles: ['sales'] } });
}

mkdirSync(directory, { recursive: true });
await prepare();
const browser = await launch();
for (const width of (process.env.WIDTHS ?? '1400,400').split(',').map(Number)) {
  for (const theme of ['light', 'dark']) {
    const page = await openPage(browser, { theme, width, height: width === 400 ? 800 : width > 2000 ? 1300 : 900 });
    for (const [name, address, ready] of pages(db)) {
      if (only.length > 0 && !only.includes(name)) continue;
      await page.evaluate((hash) => { location.hash = hash; }, address);
      await page.locator(ready).first().waitFor({ timeout: 8000 }).catch(() => console.log(`${name}: ${ready} did not appear`));
      await page.waitForFunction(() => !document.querySelector('.skeleton'), undefined, { timeout: 3000 }).catch(() => console.log(`${name}: a skeleton remains`));
      if (name === 'dashboard') await page.waitForTimeout(only.length > 0 ? 9000 : 4500);
      await page.screenshot({ path: `${directory}/${name}-${theme}-${width}.png` });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (wide > 0) console.log(`${name} ${width}: ${wide} px too wide`);
    }
    for (const problem of page.problems) console.log(`${theme} ${width}: ${problem}`);
    await page.context().close();
  }
}
await browser.close();
