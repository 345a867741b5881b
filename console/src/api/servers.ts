/**
 * Servers of the console: the one that serves it, and those that the content security policy permits (`connect-src`). Invariant: a page
 * writes to one server only. Selecting another server reloads the page, so that no running task can send requests to it. Only the page
 * Servers reads from all servers. The address contains the server, and the tab of the browser stores the logins and the last page of each
 * server, so tabs are independent.
 */

/** Prefix of the first segment of an address that contains the name of another server. */
export const MARK = '~';
const LOGIN = 'settee-login ';
const PAGE = 'settee-page ';

/** Returns the name of the server in an address of the console, or an empty text for the server that serves the console. */
export function serverOf(hash: string): string {
  const [, name = ''] = /^#\/~([^/?]*)/.exec(hash) ?? [];
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

export const server = typeof location === 'undefined' ? '' : serverOf(location.hash);

/** Returns the URL of a server, or undefined if the name is invalid. */
export function urlOf(name: string): string | undefined {
  const isPlain = name.startsWith('http:');
  const url = `${isPlain ? 'http' : 'https'}://${isPlain ? name.slice('http:'.length) : name}/`;
  return nameOf(url) === name ? url : undefined;
}

/** Returns the name of the server at a URL, or undefined if the URL cannot be part of a policy. */
export function nameOf(given: string): string | undefined {
  if (!URL.canParse(given)) return undefined;
  const { protocol, host, pathname, username, password, search } = new URL(given);
  // Users may paste the address of a console.
  const prefix = pathname.replace(/_utils(?:\/.*)?$/, '').replace(/\/$/, '');
  const isUsable = /^https?:$/.test(protocol) && username + password + search === '' && /^[\w.\-[\]:]+$/.test(host) && /^(?:\/[\w.~-]+)*$/.test(prefix);
  return isUsable ? `${protocol === 'http:' ? 'http:' : ''}${host}${prefix}` : undefined;
}

const sourcesOf = (policy: string) => policy.split(';').map((directive) => directive.trim().split(/\s+/)).find(([name]) => name === 'connect-src')?.slice(1);

export function serversOf(policy: string): string[] {
  return (sourcesOf(policy) ?? []).flatMap((source) => nameOf(source) ?? []);
}

/** Returns the policy with its other servers replaced by `names`. */
export function policyWith(policy: string, names: string[]): string {
  const others = (sourcesOf(policy) ?? ["'self'"]).filter((source) => nameOf(source) === undefined);
  const directive = ['connect-src', ...others, ...names.flatMap((name) => urlOf(name) ?? [])].join(' ');
  const directives = policy.split(';').map((each) => each.trim()).filter((each) => each !== '');
  const at = directives.findIndex((each) => /^connect-src\b/.test(each));
  return (at < 0 ? [...directives, directive] : directives.with(at, directive)).join('; ');
}

/** Returns the authentication header for another server, because this page cannot use cookies of that server. */
export function authorization(on = server): Record<string, string> {
  const kept = sessionStorage.getItem(LOGIN + on);
  return kept === null ? {} : { Authorization: kept };
}

export function removeLogin(on = server): void {
  sessionStorage.removeItem(LOGIN + on);
}

/** Stores credentials until the tab is closed. */
export function storeLogin(name: string, password: string, on = server): void {
  sessionStorage.setItem(LOGIN + on, `Basic ${btoa(String.fromCharCode(...new TextEncoder().encode(`${name}:${password}`)))}`);
}

/** Stores the address of the current page of this server until the tab is closed. */
export function storePage(hash: string): void {
  sessionStorage.setItem(PAGE + server, hash);
}

/** Returns the address of the page that was last open on a server, or undefined. */
export function storedPage(name: string): string | undefined {
  const hash = sessionStorage.getItem(PAGE + name);
  return hash !== null && serverOf(hash) === name ? hash : undefined;
}
