/** Suggestions for fields: users, roles, filter functions. The lists are empty if a request fails. */
import { designs } from './design.ts';
import { get } from './http.ts';
import { query } from './paths.ts';

const USERS_READ = 200;
const PREFIX = 'org.couchdb.user:';

export interface People {
  names: string[];
  roles: string[];
}

const sorted = (names: Iterable<string>) => [...new Set(names)].sort();

/** Returns the first `USERS_READ` users and their roles. */
export async function people(signal: AbortSignal): Promise<People> {
  const range = { include_docs: true, limit: USERS_READ, startkey: JSON.stringify(PREFIX), endkey: JSON.stringify(`${PREFIX}\ufff0`) };
  const found = await get<{ rows: { doc?: { name?: string; roles?: string[] } }[] }>(`_users/_all_docs${query(range)}`, signal).catch(() => ({ rows: [] }));
  const users = found.rows.flatMap(({ doc }) => (doc ? [doc] : []));
  return { names: sorted(users.flatMap(({ name }) => (name === undefined ? [] : [name]))), roles: sorted(users.flatMap(({ roles }) => roles ?? [])) };
}

/** Returns the filter functions of a database as `ddoc/filter`. */
export async function filters(db: string, signal: AbortSignal): Promise<string[]> {
  const found = await designs(db, signal).catch(() => []);
  return found.flatMap(({ _id, filters }) => Object.keys(filters ?? {}).map((name) => `${_id.slice('_design/'.length)}/${name}`));
}
