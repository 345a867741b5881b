/**
 * Routing by the URL fragment, which contains a path and a query, so that the console works below any prefix without support by the
 * server. The address determines the content of a page; `useParam` stores a state of a page in it.
 */
import { useEffect, useState } from 'preact/hooks';
import { segment } from './api/paths.ts';
import { MARK, server, serverOf, storePage, storedPage } from './api/servers.ts';
import { fromFauxton } from './fauxton.ts';

export interface Route {
  path: string[];
  query: URLSearchParams;
}

export type Query = Record<string, string | undefined>;

export function parseHash(hash: string): Route {
  const requested = split(hash);
  return translate(requested) ?? requested;
}

function split(hash: string): Route {
  const text = hash.replace(/^#\/?/, '');
  const mark = text.indexOf('?');
  const path = (mark < 0 ? text : text.slice(0, mark)).split('/').filter((part) => part !== '').map(decode);
  // The segment of the server, which `serverOf` reads.
  if (path[0]?.startsWith(MARK)) path.shift();
  return { path, query: new URLSearchParams(mark < 0 ? '' : text.slice(mark + 1)) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function translate(route: Route): Route | undefined {
  const target = fromFauxton(route.path, route.query);
  return target && { path: target.path, query: new URLSearchParams(target.query) };
}

export function href(path: string[], query: Query = {}, on = server): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== '') params.set(name, value);
  const search = params.toString();
  return `#/${[...(on === '' ? [] : [MARK + on]), ...path].map(segment).join('/')}${search ? `?${search}` : ''}`;
}

const listeners = new Set<() => void>();
let current = parseHash('');
/** The fragment from which `current` was read. */
let settledHash = '';

/** Reads the address. An address of Fauxton is replaced by that of its page; another server reloads the console. */
function read(): void {
  if (serverOf(location.hash) !== server) {
    storePage(settledHash);
    location.reload();
    return;
  }
  const requested = split(location.hash);
  const translated = translate(requested);
  current = translated ?? requested;
  if (translated) history.replaceState(null, '', href(translated.path, Object.fromEntries(translated.query)));
  settledHash = location.hash;
}

function changed(): void {
  read();
  for (const listener of listeners) listener();
}

if (typeof addEventListener !== 'undefined') {
  read();
  addEventListener('hashchange', changed);
}

/** Parameter with the name of the open dialog. */
const DIALOG = 'do';

/** Navigates to a page. `route()` returns the new route afterwards. */
export function go(path: string[], query: Query = {}): void {
  // The history must not contain an address with an open dialog.
  if (current.query.has(DIALOG) && location.hash === settledHash) setParams({ [DIALOG]: undefined }, true);
  visit(href(path, query));
}

/** Sets the address and reads it immediately, because the browser's event is asynchronous. */
function visit(target: string): void {
  location.hash = target.slice(1);
  changed();
}

/** Returns the address of a server: the page that was last open on it in this tab, or its databases. */
export function hrefOf(name: string): string {
  return storedPage(name) ?? href(['databases'], {}, name);
}

/** Navigates to a page of another server, by default to `hrefOf`. An empty name selects the server of the console. */
export function goTo(name: string, path?: string[]): void {
  location.hash = (path ? href(path, {}, name) : hrefOf(name)).slice(1);
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

/** Changes parameters of the address. Use `replace` for frequent changes, because it adds no entry to the history. */
export function setParams(changes: Query, replace = false): void {
  const query = new URLSearchParams(current.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === '') query.delete(name);
    else query.set(name, value);
  }
  const target = href(current.path, Object.fromEntries(query));
  if (target === location.hash) return;
  // The browser has navigated and its event is pending: a state of the old page must not replace the new address.
  if (replace && location.hash !== settledHash) return;
  if (!replace) {
    visit(target);
    return;
  }
  history.replaceState(null, '', target);
  changed();
}

/** A state that is stored in a parameter of the address. */
export function useParam(name: string, fallback = ''): [string, (value: string, replace?: boolean) => void] {
  const value = useRoute().query.get(name) ?? fallback;
  return [value, (next, replace = false) => setParams({ [name]: next === fallback ? undefined : next }, replace)];
}

/** The open dialog of a page, stored in the address. Opening and closing add no entry to the history, so Back never reopens a dialog. */
export function useDialog(): [string, (name: string) => void] {
  const [name, setName] = useParam(DIALOG);
  return [name, (next) => setName(next, true)];
}
