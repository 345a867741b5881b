/**
 * Where the console is: a path and a query behind the `#`, so that it works below every prefix and needs nothing of the server.
 * All that a page shows follows from its address; `useParam` is how a page keeps a state there.
 */
import { useEffect, useState } from 'preact/hooks';
import { segment } from './api/paths.ts';

export interface Route {
  path: string[];
  query: URLSearchParams;
}

export type Query = Record<string, string | undefined>;

export function parseHash(hash: string): Route {
  const text = hash.replace(/^#\/?/, '');
  const mark = text.indexOf('?');
  const path = (mark < 0 ? text : text.slice(0, mark)).split('/').filter((part) => part !== '').map(decode);
  return translate({ path, query: new URLSearchParams(mark < 0 ? '' : text.slice(mark + 1)) });
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Addresses of Fauxton that people have in their bookmarks. */
function translate(route: Route): Route {
  const [first, second, third, fourth, fifth, sixth] = route.path;
  const to = (...path: string[]) => ({ path, query: route.query });
  switch (first) {
    case '_all_dbs': return to('databases');
    case 'activetasks': return to('activity');
    case '_config': return to('config');
    case 'setup': return route;
    case 'cors': return to('config', 'cors');
    case 'verifyinstall':
    case 'documentation': return to('server');
    case 'createAdmin':
    case 'addAdmin':
    case 'changePassword': return to('users');
    case 'logout': return to('login');
    case 'database':
    case '_all_docs': {
      if (second === undefined) return to('databases');
      if (third === undefined || third === '_all_docs') return to('db', second);
      if (third === '_find') return to('db', second, 'query');
      if (third === '_changes' || third === 'changes') return to('db', second, 'changes');
      if (third === 'permissions') return to('db', second, 'settings');
      if (third === 'new') return to('db', second, 'new');
      if (third === '_design' && fourth && fifth === '_view' && sixth) return to('db', second, 'view', fourth, sixth);
      if (third === '_design' && fourth) return to('db', second, 'design', fourth);
      return to('db', second, 'doc', route.path.slice(2).join('/'));
    }
    default: return route;
  }
}

export function href(path: string[], query: Query = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== '') params.set(name, value);
  const search = params.toString();
  return `#/${path.map(segment).join('/')}${search ? `?${search}` : ''}`;
}

const listeners = new Set<() => void>();
let current = typeof location === 'undefined' ? parseHash('') : parseHash(location.hash);

let settled = typeof location === 'undefined' ? '' : location.hash;

function changed(): void {
  settled = location.hash;
  current = parseHash(location.hash);
  for (const listener of listeners) listener();
}

if (typeof addEventListener !== 'undefined') addEventListener('hashchange', changed);

export function go(path: string[], query: Query = {}): void {
  location.hash = href(path, query).slice(1);
}

export function route(): Route {
  return current;
}

export function useRoute(): Route {
  const [, bump] = useState(0);
  useEffect(() => {
    const listener = () => bump((n) => n + 1);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return current;
}

/** Changes parameters of the address; `replace`: without a step in the history, as for what follows each key stroke. */
export function setParams(changes: Query, replace = false): void {
  const query = new URLSearchParams(current.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === '') query.delete(name);
    else query.set(name, value);
  }
  const target = href(current.path, Object.fromEntries(query));
  if (target === location.hash) return;
  // The browser has gone elsewhere and its event is on the way: what follows the old place must not be written over the new one.
  if (replace && location.hash !== settled) return;
  if (!replace) {
    location.hash = target.slice(1);
    return;
  }
  history.replaceState(null, '', target);
  changed();
}

/** A state that is kept in the address. */
export function useParam(name: string, fallback = ''): [string, (value: string, replace?: boolean) => void] {
  const value = useRoute().query.get(name) ?? fallback;
  return [value, (next, replace = false) => setParams({ [name]: next === fallback ? undefined : next }, replace)];
}
