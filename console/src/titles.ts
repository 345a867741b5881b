/** Titles of the browser tab. They depend on the address only, so that they are correct while the page is loading. */
import type { Route } from './router.ts';

const PAGES: Record<string, string> = {
  databases: 'Databases', dashboard: 'Dashboard', activity: 'Activity', replication: 'Replication', users: 'Users', config: 'Configuration', server: 'Server',
  logs: 'Logs', backups: 'Backups', servers: 'Servers', slow: 'Slow requests', account: 'Account', setup: 'Set up', login: 'Log in',
};

const PARTS: Record<string, string> = {
  new: 'New document in', upload: 'Upload to', designs: 'Views of', query: 'Query', search: 'Search', playground: 'Playground of', changes: 'Changes of', schema: 'Schema of', settings: 'Settings of',
};

export function titleOf({ path }: Route): string {
  const [page = 'databases', name = '', part, third = '', fourth = ''] = path;
  if (page === 'db') return database(name, part, third, fourth);
  if (page === 'replication' && name === 'new') return 'New replication';
  if (page === 'config' && name === 'cors') return 'CORS';
  return PAGES[page] ?? 'Not found';
}

function database(db: string, part: string | undefined, third: string, fourth: string): string {
  if (part === undefined || part === 'docs') return db;
  if (part === 'doc') return third;
  if (part === 'design') return `_design/${third}`;
  if (part === 'view') return `${third}/${fourth}`;
  const known = PARTS[part];
  return known === undefined ? 'Not found' : `${known} ${db}`;
}
