/**
 * Pagination by key in both directions. Each page starts at the last key of the previous one, so the cost of a page does not depend on
 * its position. At most `ROWS_MAX` rows are kept.
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

export interface Paged {
  atFirst: boolean;
  rows: Row[];
  shift: number;
  total: number | undefined;
  /** Offset of the first loaded row, if the server returns it. */
  offset: number | undefined;
  atLast: boolean;
  error: Error | undefined;
  loading: boolean;
  /** Duration of the last request. */
  ms: number | undefined;
  near: (end: 'first' | 'last') => void;
  again: () => void;
  /** Replaces the row of the same document after a write. */
  put: (row: Row) => void;
}

const ROWS_MAX = 3000;
const PAGE_MIN = 10;
const PAGE_MAX = 200;
/** Target size of a response. */
const ANSWER_BYTES = 300_000;

interface State {
  rows: Row[];
  shift: number;
  total: number | undefined;
  offset: number | undefined;
  atFirst: boolean;
  atLast: boolean;
}

const EMPTY: State = { rows: [], shift: 0, total: undefined, offset: undefined, atFirst: false, atLast: false };

/** Returns the number of rows at this end with the same key and document; the next page must skip them. */
function ties(rows: Row[], from: number, step: number): number {
  let count = 0;
  for (let at = from; at >= 0 && at < rows.length && rows[at]?.key === rows[from]?.key && rows[at]?.id === rows[from]?.id; at += step) count += 1;
  return count;
}

export function usePager(request: PageRequest | undefined, deps: unknown[]): Paged {
  const [state, setState] = useState<State>(EMPTY);
  const [error, setError] = useState<Error>();
  const [loading, setLoading] = useState(true);
  const [ms, setMs] = useState<number>();
  const [reloads, bump] = useState(0);
  const now = useRef({ state: EMPTY, request, busy: false, limit: request?.limit ?? PAGE_MAX, control: new AbortController() });
  const load = useCallback(async (end: 'first' | 'last', isStart = false) => {
    const at = now.current;
    if (at.busy || !at.request) return;
    at.busy = true;
    setLoading(true);
    setError(undefined);
    const control = at.control;
    try {
      const { rows: loaded } = at.state;
      const forward = end === 'last';
      const edge = forward ? loaded.at(-1) : loaded[0];
      const range = isStart || !edge
        ? { startkey: at.request.from?.key ?? at.request.startkey, startkey_docid: at.request.from?.id, endkey: at.request.endkey }
        : { startkey: edge.key, startkey_docid: edge.id, skip: ties(loaded, forward ? loaded.length - 1 : 0, forward ? -1 : 1), endkey: forward ? at.request.endkey : at.request.startkey };
      const descending = at.request.descending === forward;
      const limit = at.limit;
      const answer = await send('GET', at.request.path + queryOf({ ...at.request.params, ...range, limit, descending: descending || undefined }), { signal: control.signal });
      const found = readRows(answer.text);
      if (control.signal.aborted) return;
      setMs(answer.ms);
      at.limit = Math.max(PAGE_MIN, Math.min(PAGE_MAX, Math.round((limit * ANSWER_BYTES) / Math.max(1, answer.text.length))));
      at.state = forward ? append(at.state, found.rows, found.rows.length < limit, isStart, found) : prepend(at.state, found.rows, found.rows.length < limit);
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
    now.current = { state: { ...EMPTY, atFirst: request?.from === undefined }, request, busy: false, limit: request?.limit ?? PAGE_MAX, control };
    setState(now.current.state);
    void load('last', true);
    return () => control.abort();
  }, [...deps, reloads]);
  const near = useCallback((end: 'first' | 'last') => {
    const { state: at, busy } = now.current;
    if (busy || at.rows.length === 0 || (end === 'last' ? at.atLast : at.atFirst)) return;
    void load(end);
  }, [load]);
  const put = useCallback((row: Row) => {
    const at = now.current;
    at.state = { ...at.state, rows: at.state.rows.map((each) => (each.id === row.id ? row : each)) };
    setState(at.state);
  }, []);
  return { ...state, error, loading, ms, near, put, again: useCallback(() => bump((n) => n + 1), []) };
}

function append(old: State, rows: Row[], atLast: boolean, isStart: boolean, found: { total: number | undefined; offset: number | undefined }): State {
  const all = [...old.rows, ...rows];
  const dropped = Math.max(0, all.length - ROWS_MAX);
  const offset = isStart ? found.offset : old.offset;
  return {
    rows: all.slice(dropped), shift: old.shift - dropped, total: found.total ?? old.total, offset: offset === undefined ? undefined : offset + dropped,
    atFirst: old.atFirst && dropped === 0, atLast,
  };
}

function prepend(old: State, rows: Row[], atFirst: boolean): State {
  const all = [...rows.reverse(), ...old.rows];
  const kept = all.slice(0, ROWS_MAX);
  const offset = old.offset === undefined ? undefined : Math.max(0, old.offset - rows.length);
  return { ...old, rows: kept, shift: old.shift + rows.length, offset: atFirst ? 0 : offset, atFirst, atLast: old.atLast && kept.length === all.length };
}
