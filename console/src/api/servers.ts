/**
 * The servers of the window: that of the console itself, and those that the policy of the page permits (`connect-src`). A page works with one
 * server from its start to its end, so that no request of a running task reaches another one. A change of the server loads the page again.
 */

/** The first segment of an address names another server after this mark. */
export const MARK = '~';
const LOGIN = 'settee-login ';

/** The name of the server in an address of the console; empty for the server of the console itself. */
export function serverOf(hash: string): string {
  const [, name = ''] = /^#\/~([^/?]*)/.exec(hash) ?? [];
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/** The server of this page. */
export const server = typeof location === 'undefined' ? '' : serverOf(location.hash);

/** The URL of a named server; undefined for a name that belongs to none. */
export function urlOf(name: string): string | undefined {
  const isPlain = name.startsWith('http:');
  const url = `${isPlain ? 'http' : 'https'}://${isPlain ? name.slice('http:'.length) : name}/`;
  return nameOf(url) === name ? url : undefined;
}

/** The name of the server at a URL; undefined if the URL cannot be part of a policy. */
export function nameOf(given: string): string | undefined {
  if (!URL.canParse(given)) return undefined;
  const { protocol, host, pathname, username, password, search } = new URL(given);
  // The address of a console is accepted too.
  const prefix = pathname.replace(/_utils(?:\/.*)?$/, '').replace(/\/$/, '');
  const isUsable = /^https?:$/.test(protocol) && username + password + search === '' && /^[\w.\-[\]:]+$/.test(host) && /^(?:\/[\w.~-]+)*$/.test(prefix);
  return isUsable ? `${protocol === 'http:' ? 'http:' : ''}${host}${prefix}` : undefined;
}

const sourcesOf = (policy: string) => policy.split(';').map((directive) => directive.trim().split(/\s+/)).find(([name]) => name === 'connect-src')?.slice(1);

/** The names of the servers that a policy permits. */
export function serversOf(policy: string): string[] {
  return (sourcesOf(policy) ?? []).flatMap((source) => nameOf(source) ?? []);
}

/** The policy with exactly these servers, in addition to that of the page. */
export function policyWith(policy: string, names: string[]): string {
  const others = (sourcesOf(policy) ?? ["'self'"]).filter((source) => nameOf(source) === undefined);
  const directive = ['connect-src', ...others, ...names.flatMap((name) => urlOf(name) ?? [])].join(' ');
  const directives = policy.split(';').map((each) => each.trim()).filter((each) => each !== '');
  const at = directives.findIndex((each) => /^connect-src\b/.test(each));
  return (at < 0 ? [...directives, directive] : directives.with(at, directive)).join('; ');
}

/** The header that authenticates requests to another server. Cookies of another server do not reach it from this page. */
export function authorization(): Record<string, string> {
  const kept = sessionStorage.getItem(LOGIN + server);
  return kept === null ? {} : { Authorization: kept };
}

/** Keeps a login until the tab is closed; without a name it is forgotten. */
export function keepLogin(name?: string, password = ''): void {
  if (name === undefined) sessionStorage.removeItem(LOGIN + server);
  else sessionStorage.setItem(LOGIN + server, `Basic ${btoa(String.fromCharCode(...new TextEncoder().encode(`${name}:${password}`)))}`);
}
