/**
 * Pages of a Mango query. The server returns a bookmark with each page, which starts the next one. The bookmarks of earlier pages
 * are kept, so that a page that was dropped can be loaded again.
 */
import { send } from '../api/http.ts';
import { readDocs, type Row } from '../json/rows.ts';
import { member, parse, stringOf } from '../json/text.ts';
import { EMPTY, ROWS_MAX, usePages, type Loaded, type LoadPage, type Paged } from './pager.ts';

export interface FindRequest {
  path: string;
  /** The query without `limit` and `bookmark`. */
  query: object;
  limit: number;
}

export interface ByBookmark extends Loaded {
  /** Number of the first loaded page. */
  first: number;
  /** Numbers of rows of the loaded pages. */
  counts: number[];
  /** Bookmark of each page that was loaded, and of the next one. */
  bookmarks: (string | undefined)[];
}

export function useFindPager(request: FindRequest | undefined, deps: unknown[]): Paged {
  const loadPage: LoadPage<ByBookmark> = async (state, end, _isStart, signal) => {
    if (!request) throw new Error('Pages are loaded after the request is set.');
    const page = end === 'last' ? state.first + state.counts.length : state.first - 1;
    const body = JSON.stringify({ ...request.query, limit: request.limit, bookmark: state.bookmarks[page] });
    const { text, ms } = await send('POST', request.path, { body, signal });
    const { docs, bookmark } = readDocs(text);
    const rows = docs.map(rowOf);
    return { state: end === 'last' ? appendPage(state, rows, bookmark, docs.length < request.limit) : prependPage(state, rows), ms };
  };
  return usePages(request && NO_PAGES, loadPage, deps);
}

/** Returns the row of a document, as `_all_docs` returns it. */
function rowOf(doc: string): Row {
  const root = parse(doc);
  const id = stringOf(doc, member(root, '_id'));
  return { id, key: JSON.stringify(id), value: JSON.stringify({ rev: stringOf(doc, member(root, '_rev')) }), doc, error: undefined };
}

export const NO_PAGES: ByBookmark = { ...EMPTY, atFirst: true, first: 0, counts: [], bookmarks: [undefined] };

/** Adds the page after the loaded ones. `bookmark` starts the page after it. */
export function appendPage(old: ByBookmark, rows: Row[], bookmark: string | undefined, atLast: boolean): ByBookmark {
  const page = old.first + old.counts.length;
  const next = { ...old, rows: [...old.rows, ...rows], counts: [...old.counts, rows.length], bookmarks: [...old.bookmarks.slice(0, page + 1), bookmark], atLast };
  const [dropped = 0, ...counts] = next.counts;
  return next.rows.length <= ROWS_MAX || counts.length === 0 ? next
    : { ...next, rows: next.rows.slice(dropped), counts, first: old.first + 1, shift: old.shift - dropped, atFirst: false };
}

/** Adds the page before the loaded ones. */
export function prependPage(old: ByBookmark, rows: Row[]): ByBookmark {
  const next = { ...old, rows: [...rows, ...old.rows], counts: [rows.length, ...old.counts], first: old.first - 1, shift: old.shift + rows.length, atFirst: old.first === 1 };
  return next.rows.length <= ROWS_MAX ? next
    : { ...next, rows: next.rows.slice(0, next.rows.length - (next.counts.at(-1) ?? 0)), counts: next.counts.slice(0, -1), atLast: false };
}
