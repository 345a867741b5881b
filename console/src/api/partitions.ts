import { get } from './http.ts';
import { path, query } from './paths.ts';

/** Maximum number of suggested names. Each one costs a request. */
const NAMES_MAX = 20;

/** Returns the path of a partition, or of the database if `partition` is empty. */
export const partitionPath = (db: string, partition: string) => (partition === '' ? path`${db}` : path`${db}/_partition/${partition}`);

export interface PartitionInfo {
  doc_count: number;
  doc_del_count: number;
  sizes: { active: number; external: number };
}

export const partitionInfo = (db: string, partition: string, signal: AbortSignal) => get<PartitionInfo>(path`${db}/_partition/${partition}`, signal);

/** Returns the first partitions by name. Each request starts after the ids of the previous partition. */
export async function partitions(db: string, signal: AbortSignal): Promise<string[]> {
  const names: string[] = [];
  while (names.length < NAMES_MAX) {
    const last = names.at(-1);
    // `;` is the character after `:`.
    const range = { limit: 20, ...(last === undefined ? {} : { startkey: JSON.stringify(`${last};`) }) };
    const { rows } = await get<{ rows: { id: string }[] }>(path`${db}/_all_docs` + query(range), signal);
    const next = rows.map(({ id }) => id).find((id) => !id.startsWith('_') && id.includes(':'));
    if (next === undefined) break;
    names.push(next.slice(0, next.indexOf(':')));
  }
  return names;
}
