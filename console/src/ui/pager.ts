/**
 * Pagination in both directions. The cost of a page does not depend on its position. At most `ROWS_MAX` rows are kept.
 * `usePager` reads pages by key, and `usePages` is the part that does not depend on the request.
 */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { send } from '../api/http.ts';
import { query as queryOf } from '../api/paths.ts';
import { readRows, type Row } from '../json/rows.ts';

export interface PageRequest {
  path: string;
  /** Parameters other than the range: `include_docs`, `reduce` … */
  params: Record<string, string | boolean | undefined>;
  descending: boolean;
  /** Range of keys, in JSON. */
  startkey?: string | undefined;
  endkey?: string | undefined;
  /** Position of the first page within the range. */
  from?: { key: string; id?: string | undefined } | undefined;
  /** Number of rows of the first page. The limit of later pages is adapted to the size of the responses. */
  limit: number;
}

export interface Loaded {
  atFirst: boolean;
  atLast: boolean;
  rows: Row[];
  shift: number;
  total: number | undefined;
  /** Offset of the first loaded row, if the server returns it. */
  offset: number | undefined;
}

export interface Paged extends Loaded {
  error: Error | undefined;
  loading: boolean;
  /** Duration of the last request. */
  ms: number | undefined;
  near: (end: End) => void;
  again: () => void;
  /** Replaces the row of the same document after a write. */
  put: (row: Row) => void;
}

export type End = 'first' | 'last';

/** Loads the page after an end of the loaded rows. `isStart` is true for the first page of the list. */
export type LoadPage<S> = (state: S, end: End, isStart: boolean, signal: AbortSignal) => Promise<{ state: S; ms: number }>;

export const ROWS_MAX = 3000;
const PAGE_MIN = 10;
const PAGE_MAX = 200;
/** Target size of a response. */
const ANSWER_BYTES = 300_000;

export const EMPTY: Loaded = { rows: [], shift: 0, total: undefined, offset: undefined, atFirst: false, atLast: false };

/** Returns the number of rows of a page whose documents have this average size. */
export function pageSize(average: number | undefined, bytes = ANSWER_BYTES, max = PAGE_MAX): number {
  return Math.max(PAGE_MIN, Math.min(max, Math.round(bytes / Math.max(1, average ?? 4000))));
}

/** Keeps the pages of the list that begins with `start`. Loads nothing while `start` is undefined. */
export function usePages<S extends Loaded>(start: S | undefined, loadPage: LoadPage<S>, deps: unknown[]): Paged {
  const [state, setState] = useState<Loaded>(EMPTY);
  const [error, setError] = useState<Error>();
  const [loading, setLoading] = useState(true);
  const [ms, setMs] = useState<number>();
  const [reloads, bump] = useState(0);
  const now = useRef({ state: start, loadPage, busy: false, control: new AbortController() });
  const load = useCallback(async (end: End, isStart = false) => {
    const at = now.current;
    if (at.busy || !at.state) return;
    at.busy = true;
    setLoading(true);
    setError(undefined);
    const control = at.control;
    try {
      const page = await at.loadPage(at.state, end, isStart, control.signal);
      if (control.signal.aborted) return;
      setMs(page.ms);
      at.state = page.state;
      setState(at.state);
    } catch (problem) {
      if (!control.signal.aborted) setError(problem as Error);
    } finally {
      if (!control.signal.aborted) {
        at.busy = false;
        setLoading(false);
      }
    }
  }, []);
  useEffect(() => {
    const control = new AbortController();
    now.current = { state: start, loadPage, busy: false, control };
    setState(start ?? EMPTY);
    void load('last', true);
    return () => control.abort();
  }, [...deps, reloads]);
  const near = useCallback((end: End) => {
    const { state: at, busy } = now.current;
    if (!at || busy || at.rows.length === 0 || (end === 'last' ? at.atLast : at.atFirst)) return;
    void load(end);
  }, [load]);
  const put = useCallback((row: Row) => {
    const at = now.current;
    if (!at.state) return;
    at.state = { ...at.state, rows: at.state.rows.map((each) => (each.id === row.id ? row : each)) };
    setState(at.state);
  }, []);
  return { ...state, error, loading, ms, near, put, again: useCallback(() => bump((n) => n + 1), []) };
}

interface ByKey extends Loaded {
  /** Number of rows of the next page. */
  limit: number;
}

/** Each page starts at the last key of the previous one. */
export function usePager(request: PageRequest | undefined, deps: unknown[]): Paged {
  const loadPage: LoadPage<ByKey> = async (state, end, isStart, signal) => {
    if (!request) throw new Error('Pages are loaded after the request is set.');
    const { rows: loaded, limit } = state;
    const forward = end === 'last';
    const edge = forward ? loaded.at(-1) : loaded[0];
    const range = isStart || !edge
      ? { startkey: request.from?.key ?? request.startkey, startkey_docid: request.from?.id, endkey: request.endkey }
      : { startkey: edge.key, startkey_docid: edge.id, skip: ties(loaded, forward ? loaded.length - 1 : 0, forward ? -1 : 1), endkey: forward ? request.endkey : request.startkey };
    const descending = request.descending === forward;
    const answer = await send('GET', request.path + queryOf({ ...request.params, ...range, limit, descending: descending || undefined }), { signal });
    const found = readRows(answer.text);
    const isLast = found.rows.length < limit;
    const next = forward ? append(state, found.rows, isLast, isStart, found) : prepend(state, found.rows, isLast);
    return { state: { ...next, limit: pageSize(answer.text.length / limit) }, ms: answer.ms };
  };
  return usePages(request && { ...EMPTY, atFirst: request.from === undefined, limit: request.limit }, loadPage, deps);
}

/** Returns the number of rows at this end with the same key and document; the next page must skip them. */
function ties(rows: Row[], from: number, step: number): number {
  let count = 0;
  for (let at = from; at >= 0 && at < rows.length && rows[at]?.key === rows[from]?.key && rows[at]?.id === rows[from]?.id; at += step) count += 1;
  return count;
}

function append(old: Loaded, rows: Row[], atLast: boolean, isStart: boolean, found: { total: number | undefined; offset: number | undefined }): Loaded {
  const all = [...old.rows, ...rows];
  // A list by keys is one page, which is kept completely.
  const dropped = isStart ? 0 : Math.max(0, all.length - ROWS_MAX);
  const offset = isStart ? found.offset : old.offset;
  return {
    rows: all.slice(dropped), shift: old.shift - dropped, total: found.total ?? old.total, offset: offset === undefined ? undefined : offset + dropped,
    atFirst: old.atFirst && dropped === 0, atLast,
  };
}

function prepend(old: Loaded, rows: Row[], atFirst: boolean): Loaded {
  const all = [...rows.reverse(), ...old.rows];
  const kept = all.slice(0, ROWS_MAX);
  const offset = old.offset === undefined ? undefined : Math.max(0, old.offset - rows.length);
  return { ...old, rows: kept, shift: old.shift + rows.length, offset: atFirst ? 0 : offset, atFirst, atLast: old.atLast && kept.length === all.length };
}
