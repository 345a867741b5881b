/**
 * Paths on the server. Every id and every name reaches a path through `segment`, and every path becomes an address through
 * `address`, which refuses what a browser would change on the way: a name must never address anything but its own object.
 */

import { server, urlOf } from './servers.ts';

/** A name that no browser can send as a segment of a path. */
export class NoAddress extends Error {
  constructor(name: string) {
    super(name === '' ? 'An empty name has no address on the server.' : `A browser cannot send the name “${decodeURIComponent(name)}”: it removes such a segment from every path. Use another client for it.`);
  }
}

/** One name as one segment of a path: `/` becomes `%2F`. It never throws. */
export function segment(name: string): string {
  // Half of a surrogate pair has no encoding in UTF-8. As its three bytes it matches no name of the server.
  const encoded = name.replace(/\p{Surrogate}|\P{Surrogate}+/gu, (part) => (/^\p{Surrogate}$/u.test(part) ? bytes(part.charCodeAt(0)) : encodeURIComponent(part)));
  return encoded === '.' || encoded === '..' ? encoded.replaceAll('.', '%2E') : encoded;
}

function bytes(unit: number): string {
  return [0xe0 | (unit >> 12), 0x80 | ((unit >> 6) & 63), 0x80 | (unit & 63)].map((byte) => `%${byte.toString(16).toUpperCase()}`).join('');
}

/** A path with names in it: path`${db}/_design/${ddoc}/_info`. */
export function path(fixed: TemplateStringsArray, ...names: string[]): string {
  return String.raw({ raw: fixed }, ...names.map(segment));
}

/** The id as a part of a path; the slash after `_design` and `_local` belongs to it. */
export function idPath(id: string): string {
  const prefix = /^_(?:design|local)\//.exec(id)?.[0] ?? '';
  const rest = segment(id.slice(prefix.length));
  // No document has such an id, and the server has other things under these names.
  return prefix + (prefix === '' ? rest.replace(/^_/, '%5F') : rest);
}

/** False for names of the server itself, such as `_security`. */
export const isDocumentId = (id: string) => id !== '' && (!id.startsWith('_') || /^_(?:design|local)\/./.test(id));

export const docPath = (db: string, id: string) => `${segment(db)}/${idPath(id)}`;
export const designPath = (db: string, ddoc: string) => path`${db}/_design/${ddoc}`;
export const attachmentPath = (db: string, id: string, name: string) => `${docPath(db, id)}/${segment(name)}`;
export const userPath = (name: string) => docPath('_users', `org.couchdb.user:${name}`);

/** A path's query; `undefined` is left out. Values of keys have to be JSON already. */
export function query(params: Record<string, string | number | boolean | undefined>): string {
  const parts = Object.entries(params).filter(([, value]) => value !== undefined && value !== '');
  return parts.length === 0 ? '' : `?${parts.map(([name, value]) => `${name}=${segment(String(value))}`).join('&')}`;
}

/** An address that no server has: it takes the place of a name that is none. */
const NO_SERVER = 'https://none.invalid/';

/** The address of the server, with a slash at its end. */
export function root(): string {
  return server === '' ? new URL('../', location.href.split('#')[0]).href : (urlOf(server) ?? NO_SERVER);
}

/** True for what a browser or a proxy drops from a path. */
export const isDropped = (part: string) => /^(?:\.|%2e){0,2}$/i.test(part);

/** The address of a path on the server. Throws `NoAddress` where the browser would send another path. */
export function address(path: string, base: string = root()): string {
  const names = path.split('?', 1)[0] ?? '';
  const dropped = names === '' ? undefined : names.split('/').find(isDropped);
  if (dropped !== undefined) throw new NoAddress(dropped);
  if (new URL(base + path).pathname !== new URL(base).pathname + names) throw new NoAddress(names);
  return base + path;
}

/** The address for a link, or nothing where there is none. */
export function linkTo(path: string): string | undefined {
  try {
    return address(path);
  } catch (error) {
    if (error instanceof NoAddress) return undefined;
    throw error;
  }
}
