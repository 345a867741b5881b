/**
 * Paths on the server. Invariant: a name never addresses another object than its own. `segment` encodes every id and every name, and
 * `address` refuses paths that a browser would normalize to other paths.
 */

import { server, urlOf } from './servers.ts';

/** Error for a name that no browser can send as a path segment. */
export class NoAddress extends Error {
  constructor(name: string) {
    super(name === '' ? 'An empty name has no address on the server.' : `A browser cannot send the name “${decodeURIComponent(name)}”: it removes such a segment from every path. Use another client for it.`);
  }
}

/** Encodes a name as one path segment; `/` becomes `%2F`. Never throws. */
export function segment(name: string): string {
  // A lone surrogate has no encoding in UTF-8, and encodeURIComponent throws. Its three bytes match no name of the server.
  const encoded = name.replace(/\p{Surrogate}|\P{Surrogate}+/gu, (part) => (/^\p{Surrogate}$/u.test(part) ? bytes(part.charCodeAt(0)) : encodeURIComponent(part)));
  return encoded === '.' || encoded === '..' ? encoded.replaceAll('.', '%2E') : encoded;
}

function bytes(unit: number): string {
  return [0xe0 | (unit >> 12), 0x80 | ((unit >> 6) & 63), 0x80 | (unit & 63)].map((byte) => `%${byte.toString(16).toUpperCase()}`).join('');
}

/** Template tag that encodes names in a path: path`${db}/_design/${ddoc}/_info`. */
export function path(fixed: TemplateStringsArray, ...names: string[]): string {
  return String.raw({ raw: fixed }, ...names.map(segment));
}

/** Encodes a document id for a path. The slash after `_design` and `_local` is not encoded. */
export function idPath(id: string): string {
  const prefix = /^_(?:design|local)\//.exec(id)?.[0] ?? '';
  const rest = segment(id.slice(prefix.length));
  // No document id begins with `_`; the encoding prevents requests to endpoints such as `_security`.
  return prefix + (prefix === '' ? rest.replace(/^_/, '%5F') : rest);
}

/** Returns false for names of endpoints, such as `_security`. */
export const isDocumentId = (id: string) => id !== '' && (!id.startsWith('_') || /^_(?:design|local)\/./.test(id));

export const docPath = (db: string, id: string) => `${segment(db)}/${idPath(id)}`;
export const designPath = (db: string, ddoc: string) => path`${db}/_design/${ddoc}`;
export const attachmentPath = (db: string, id: string, name: string) => `${docPath(db, id)}/${segment(name)}`;
export const userPath = (name: string) => docPath('_users', `org.couchdb.user:${name}`);

/** Returns the query of a URL. Undefined and empty values are omitted. Values of keys must be JSON. */
export function query(params: Record<string, string | number | boolean | undefined>): string {
  const parts = Object.entries(params).filter(([, value]) => value !== undefined && value !== '');
  return parts.length === 0 ? '' : `?${parts.map(([name, value]) => `${name}=${segment(String(value))}`).join('&')}`;
}

/** URL for invalid names of servers; the domain `invalid` never resolves. */
const NO_SERVER = 'https://none.invalid/';

/** Returns the URL of a server with a trailing slash. An empty name selects the server of the console. */
export function root(on = server): string {
  return on === '' ? new URL('../', location.href.split('#')[0]).href : (urlOf(on) ?? NO_SERVER);
}

/** Returns true for segments that a browser or a proxy removes from a path. */
export const isDropped = (part: string) => /^(?:\.|%2e){0,2}$/i.test(part);

/** Returns the URL of a path on the server. Throws `NoAddress` if the browser would send another path. */
export function address(path: string, base: string = root()): string {
  const names = path.split('?', 1)[0] ?? '';
  const dropped = names === '' ? undefined : names.split('/').find(isDropped);
  if (dropped !== undefined) throw new NoAddress(dropped);
  if (new URL(base + path).pathname !== new URL(base).pathname + names) throw new NoAddress(names);
  return base + path;
}

/** Returns the URL of a path, or undefined if `address` throws `NoAddress`. */
export function linkTo(path: string): string | undefined {
  try {
    return address(path);
  } catch (error) {
    if (error instanceof NoAddress) return undefined;
    throw error;
  }
}
