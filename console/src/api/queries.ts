/** Recent Mango queries and named saved ones. They are stored in `localStorage` for each server and database. */
import { root } from './paths.ts';

export interface StoredQuery {
  text: string;
  name?: string;
}

const RECENT_MAX = 30;
const SAVED_MAX = 200;
/** Longer queries are not stored. */
const TEXT_MAX = 20_000;

const keyOf = (db: string) => `settee-queries ${root()} ${db}`;

/** Returns the saved queries, then the recent ones, each sorted by time in descending order. */
export function storedQueries(db: string): StoredQuery[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(keyOf(db)) ?? '[]');
    return Array.isArray(found) ? (found as StoredQuery[]).filter(({ text }) => typeof text === 'string') : [];
  } catch {
    return [];
  }
}

/** Returns the list with a query added as the newest of its kind. A query with the same text or name is replaced. */
export function withQuery(all: readonly StoredQuery[], query: StoredQuery): StoredQuery[] {
  const others = all.filter(({ name, text }) => (query.name === undefined ? name !== undefined || text !== query.text : name !== query.name));
  const saved = others.filter(({ name }) => name !== undefined);
  const recent = others.filter(({ name }) => name === undefined);
  return query.name === undefined ? [...saved, query, ...recent.slice(0, RECENT_MAX - 1)] : [query, ...saved.slice(0, SAVED_MAX - 1), ...recent];
}

function write(db: string, all: StoredQuery[]): void {
  try {
    localStorage.setItem(keyOf(db), JSON.stringify(all));
  } catch {
    // Queries are not stored if `localStorage` is unavailable or full.
  }
}

export function storeQuery(db: string, query: StoredQuery): void {
  if (query.text.length <= TEXT_MAX) write(db, withQuery(storedQueries(db), query));
}

export function removeQuery(db: string, query: StoredQuery): void {
  write(db, storedQueries(db).filter(({ name, text }) => name !== query.name || text !== query.text));
}

const template = (name: string, query: object): StoredQuery => ({ name, text: JSON.stringify(query, null, 2) });

export const TEMPLATES: StoredQuery[] = [
  template('All documents', { selector: { _id: { $gt: null } }, limit: 25 }),
  template('Equality', { selector: { type: 'order', state: 'open' }, limit: 25 }),
  template('Range, sorted', { selector: { date: { $gte: '2024-01-01', $lt: '2025-01-01' } }, sort: [{ date: 'asc' }], limit: 25 }),
  template('One of several values', { selector: { state: { $in: ['open', 'paid'] } }, fields: ['_id', 'state'], limit: 25 }),
  template('Prefix', { selector: { name: { $beginsWith: 'An' } }, limit: 25 }),
  template('Regular expression', { selector: { name: { $regex: '^An.*a$' } }, limit: 25 }),
  template('Element of an array', { selector: { lines: { $elemMatch: { count: { $gt: 1 } } } }, limit: 25 }),
  template('Missing field', { selector: { email: { $exists: false } }, limit: 25 }),
  template('Either of two conditions', { selector: { $or: [{ city: 'Oslo' }, { total: { $gt: 100 } }] }, limit: 25 }),
];
