/**
 * The order of the table of documents by a member. The browser sorts a small list, which it loads completely. A larger list is read
 * in the order of a JSON index, because the server sorts only by indexes. Without such an index the page offers to create it.
 */
import { useEffect } from 'preact/hooks';
import { get, send } from '../api/http.ts';
import { path } from '../api/paths.ts';
import { membersOf, sortedBy } from '../json/rows.ts';
import { Button, Empty, LinkButton, Problem, showToast } from '../ui/kit.tsx';
import { useFindPager } from '../ui/find-pager.ts';
import { pageSize, type Paged } from '../ui/pager.ts';
import { useAction, useRequest } from '../ui/use.ts';
import { number, plural } from '../ui/words.ts';
import type { DbInfo } from './db.tsx';
import { type Index, indexedFields } from './indexes.tsx';

/** Largest list that the browser sorts. */
export const SORTED_ROWS_MAX = 2000;
const SORTED_BYTES_MAX = 8_000_000;

export interface SortedList {
  paged: Paged;
  /** `loading` until the order is determined, and while the browser loads the list. */
  kind: 'ids' | 'loading' | 'browser' | 'index' | 'none';
  index: Index | undefined;
  request: { path: string; query: object } | undefined;
  /** Reads the indexes again. */
  again: () => void;
}

interface Given {
  db: string;
  info: DbInfo | undefined;
  partition: { name: string; path: string };
  /** The list in the order of the ids. */
  byId: Paged;
  /** Name of the member, or an empty text for the ids. */
  by: string;
  descending: boolean;
  prefix: string;
  hasKeys: boolean;
}

/** Returns the name of a member as a field of a query, in which a dot separates the members of nested objects. */
export const fieldOf = (name: string) => name.replace(/[\\.]/g, '\\$&').replace(/^\$/, '\\$');

/** Returns the index with the fewest other fields whose first field is `field`. */
export function indexFor(indexes: Index[], field: string, isPartitioned: boolean): Index | undefined {
  const usable = indexes.filter((index) => index.type === 'json' && index.def.partial_filter_selector === undefined && (index.partitioned ?? false) === isPartitioned && indexedFields(index)[0] === field);
  return usable.toSorted((a, b) => indexedFields(a).length - indexedFields(b).length)[0];
}

export function useSorted({ db, info, partition, byId, by, descending, prefix, hasKeys }: Given): SortedList {
  const isSmall = hasKeys || (info !== undefined && info.doc_count <= SORTED_ROWS_MAX && info.sizes.external <= SORTED_BYTES_MAX);
  const needsIndex = by !== '' && info !== undefined && !isSmall;
  const indexes = useRequest((signal) => (needsIndex ? get<{ indexes: Index[] }>(path`${db}/_index`, signal).then((answer) => answer.indexes) : Promise.resolve(undefined)), [db, needsIndex]);
  const index = needsIndex && indexes.data ? indexFor(indexes.data, fieldOf(by), partition.name !== '') : undefined;
  const query = index && {
    selector: prefix === '' ? { _id: { $gt: null } } : { _id: { $gte: prefix, $lt: `${prefix}\ufff0` } },
    sort: indexedFields(index).map((field) => ({ [field]: descending ? 'desc' : 'asc' })),
    use_index: [index.ddoc, index.name],
    conflicts: true,
  };
  const request = query && { path: `${partition.path}/_find`, query };
  const average = info && info.doc_count > 0 ? info.sizes.external / info.doc_count : undefined;
  const byIndex = useFindPager(request && { ...request, limit: pageSize(average) }, [JSON.stringify(request)]);
  const isInBrowser = by !== '' && isSmall;
  useEffect(() => {
    if (isInBrowser && !byId.loading && !byId.error) byId.near('last');
  }, [isInBrowser, byId.loading, byId.rows.length]);
  const again = indexes.again;
  if (by === '') return { paged: byId, kind: 'ids', index, request, again };
  if (isInBrowser) {
    const isComplete = byId.atFirst && byId.atLast;
    const rows = isComplete ? sortedBy(byId.rows, (row) => membersOf(row).get(by), descending) : [];
    return { paged: { ...byId, rows }, kind: isComplete ? 'browser' : 'loading', index, request, again };
  }
  if (index) return { paged: byIndex, kind: 'index', index, request, again };
  return { paged: { ...byIndex, error: indexes.error }, kind: indexes.data ? 'none' : 'loading', index, request, again };
}

/** States which documents the list contains and which part of the system sorts them. */
export function orderNote({ kind, paged, index }: SortedList, by: string, descending: boolean): string {
  const direction = descending ? 'descending' : 'ascending';
  if (kind === 'browser') return `all ${plural(paged.rows.length, 'document')}, sorted by ${by} in the browser, ${direction}`;
  if (kind !== 'index' || !index) return '';
  return `${plural(paged.rows.length, 'document')} loaded, sorted by the index ${index.name}, ${direction}. Documents without ${indexedFields(index).join(' or ')} are not listed.`;
}

/** Offers to create the index that the order needs. */
export function NoIndex({ db, by, info, isPartition, onDone }: { db: string; by: string; info: DbInfo | undefined; isPartition: boolean; onDone: () => void }) {
  const { busy, error, run } = useAction();
  const create = () => void run(async () => {
    const scope = info?.props?.partitioned === true ? { partitioned: isPartition } : {};
    await send('POST', path`${db}/_index`, { body: JSON.stringify({ index: { fields: [fieldOf(by)] }, name: `by-${by}`.slice(0, 100), type: 'json', ...scope }) });
    showToast(`An index on ${by} is created. The server builds it before it returns the first documents.`);
    onDone();
  });
  return (
    <>
      <Empty icon="table" title={`No index on ${by}`} action={<><Button kind="primary" icon="plus" busy={busy} onClick={create}>Create an index on {by}</Button><LinkButton to={['db', db]}>Sort by id</LinkButton></>}>
        The server sorts documents only by an index. The browser sorts databases of at most {number(SORTED_ROWS_MAX)} documents{info === undefined ? '' : `; this one has ${number(info.doc_count)}`}.
      </Empty>
      <Problem error={error} />
    </>
  );
}
