import { ApiError, get, post } from './http.ts';
import { path, query } from './paths.ts';

export interface Info {
  doc_count: number;
  doc_del_count: number;
  sizes: { file: number; external: number; active: number };
  props?: { partitioned?: boolean };
  /** True if documents have access lists. */
  access?: boolean;
  compact_running?: boolean;
}

/** Maximum number of databases in the list. A prefix selects among more databases. */
export const NAMES_MAX = 20_000;
/** Maximum number of keys in one request of `_dbs_info`. */
const BATCH = 100;

/** Returns the sorted names that start with `prefix`. One more than `NAMES_MAX` are returned if the list is incomplete. */
export function databaseNames(prefix: string, signal?: AbortSignal, on?: string): Promise<string[]> {
  return get<string[]>(`_all_dbs${query({ limit: NAMES_MAX + 1, startkey: prefix && JSON.stringify(prefix), endkey: prefix && JSON.stringify(`${prefix}\ufff0`) })}`, signal, on);
}

/** Reads counts and sizes of databases in batches. They are undefined for databases that the user is not permitted to read. */
export async function readFigures(names: string[], signal: AbortSignal, onBatch: (found: Map<string, Info | undefined>) => void, on?: string): Promise<void> {
  for (let from = 0; from < names.length && !signal.aborted; from += BATCH) onBatch(await batch(names.slice(from, from + BATCH), signal, on));
}

async function batch(names: string[], signal: AbortSignal, on?: string): Promise<Map<string, Info | undefined>> {
  try {
    const found = await post<{ key: string; info?: Info }[]>('_dbs_info', { keys: names }, signal, on);
    return new Map(found.map(({ key, info }) => [key, info]));
  } catch (error) {
    // CouchDB before 2.2 has no `_dbs_info`, and some servers permit it to administrators only.
    if (!(error instanceof ApiError) || ![400, 401, 403, 404, 405].includes(error.status)) throw error;
    return new Map(await Promise.all(names.map(async (name): Promise<[string, Info | undefined]> => [name, await get<Info>(path`${name}`, signal, on).catch(() => undefined)])));
  }
}

export type SortKey = 'name' | 'docs' | 'deleted' | 'data' | 'disk';

const FIGURE: Record<Exclude<SortKey, 'name'>, (info: Info) => number> = {
  docs: (info) => info.doc_count, deleted: (info) => info.doc_del_count, data: (info) => info.sizes.external, disk: (info) => info.sizes.file,
};

/** Sorts databases; `names` must be sorted by name. Databases without figures are last. */
export function sortDatabases(names: string[], figures: ReadonlyMap<string, Info | undefined>, key: SortKey, descending: boolean): string[] {
  if (key === 'name') return descending ? names.toReversed() : names;
  const of = (name: string) => {
    const info = figures.get(name);
    return info && FIGURE[key](info);
  };
  return names.toSorted((a, b) => {
    const [left, right] = [of(a), of(b)];
    if (left === undefined || right === undefined) return left === right ? 0 : left === undefined ? 1 : -1;
    return descending ? right - left : left - right;
  });
}
