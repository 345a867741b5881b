/** State and databases of all servers of the list, for the page that shows them side by side. Every request is a read. */
import { useCallback, useEffect, useState } from 'preact/hooks';
import { NAMES_MAX, databaseNames, readFigures, type Info } from './databases.ts';
import { ApiError, get, send } from './http.ts';

export interface ServerState {
  /** `reading` until the first answer, `closed` without a login that the server accepts. */
  status: 'reading' | 'up' | 'closed' | 'down';
  product: string;
  user: string | undefined;
  /** Duration of the last request in milliseconds. */
  ms: number | undefined;
  /** Number of active tasks. Undefined if the user is not permitted to read them. */
  tasks: number | undefined;
  /** Sorted names of the databases. Undefined until they are read, and if the user is not permitted to read them. */
  names: string[] | undefined;
  /** True if the server has more databases than `names` contains. */
  isCut: boolean;
  figures: ReadonlyMap<string, Info | undefined>;
}

const INTERVAL_MS = 10_000;
const TIMEOUT_MS = 8_000;

const NO_DATABASES = { names: undefined, isCut: false, figures: new Map<string, Info | undefined>() };
export const UNREAD: ServerState = { status: 'reading', product: '', user: undefined, ms: undefined, tasks: undefined, ...NO_DATABASES };

type Report = (part: Partial<ServerState>) => void;

/** Polls the state of each server. The databases are read once, when the server is reached, and after `again`. */
export function useServers(names: string[]): { states: ReadonlyMap<string, ServerState>; again: () => void } {
  const [states, set] = useState<ReadonlyMap<string, ServerState>>(new Map());
  const [reads, bump] = useState(0);
  useEffect(() => {
    const control = new AbortController();
    for (const name of names) {
      void watch(name, control.signal, (part) => {
        if (!control.signal.aborted) set((old) => new Map(old).set(name, { ...(old.get(name) ?? UNREAD), ...part }));
      });
    }
    return () => control.abort();
  }, [names.join('\n'), reads]);
  return { states, again: useCallback(() => bump((n) => n + 1), []) };
}

async function watch(on: string, signal: AbortSignal, report: Report): Promise<void> {
  let isRead = false;
  while (!signal.aborted) {
    if (!document.hidden) {
      const state = await readState(on, signal);
      report(state.status === 'up' ? state : { ...state, ...NO_DATABASES });
      if (state.status !== 'up') isRead = false;
      else if (!isRead) {
        isRead = true;
        // A server that becomes unreachable is reported by the next poll.
        readDatabases(on, signal, report).catch(() => { isRead = false; });
      }
    }
    await new Promise((resolve) => { setTimeout(resolve, INTERVAL_MS); });
  }
}

type State = Pick<ServerState, 'status' | 'product' | 'user' | 'ms' | 'tasks'>;

async function readState(on: string, page: AbortSignal): Promise<State> {
  const signal = AbortSignal.any([page, AbortSignal.timeout(TIMEOUT_MS)]);
  try {
    const { text, ms } = await send('GET', '', { signal, on });
    const { version = '', vendor } = JSON.parse(text) as { version?: string; vendor?: { name?: string; version?: string } };
    const product = `${vendor?.name?.replace(/^The /, '') ?? 'CouchDB'} ${vendor?.version ?? version}`;
    const { userCtx: { name, roles } } = await get<{ userCtx: { name: string | null; roles: string[] } }>('_session', signal, on);
    if (name === null && !roles.includes('_admin')) return { ...UNREAD, status: 'closed', product, ms };
    const tasks = await get<unknown[]>('_active_tasks', signal, on).then((found) => found.length, () => undefined);
    return { status: 'up', product, user: name ?? undefined, ms, tasks };
  } catch (error) {
    return { ...UNREAD, status: error instanceof ApiError && error.status === 401 ? 'closed' : 'down' };
  }
}

async function readDatabases(on: string, signal: AbortSignal, report: Report): Promise<void> {
  const found = await databaseNames('', signal, on).catch((error: unknown) => {
    if (error instanceof ApiError && [401, 403].includes(error.status)) return undefined;
    throw error;
  });
  const names = found?.slice(0, NAMES_MAX);
  report({ names, isCut: (found?.length ?? 0) > NAMES_MAX });
  const figures = new Map<string, Info | undefined>();
  await readFigures(names ?? [], signal, (batch) => {
    for (const [name, info] of batch) figures.set(name, info);
    report({ figures: new Map(figures) });
  }, on);
}

/** Sums of the databases whose figures are read. `isComplete` is false until all are read. */
export function totals({ names, isCut, figures }: ServerState): { docs: number; bytes: number; isComplete: boolean } {
  const found = [...figures.values()];
  return {
    docs: found.reduce((sum, info) => sum + (info?.doc_count ?? 0), 0),
    bytes: found.reduce((sum, info) => sum + (info?.sizes.file ?? 0), 0),
    isComplete: names !== undefined && !isCut && names.every((name) => figures.has(name)),
  };
}

export interface Comparison {
  db: string;
  /** For each server: the figures, `null` if the database does not exist, or undefined if they are unknown. */
  infos: (Info | null | undefined)[];
  differs: boolean;
}

/** Compares the databases of servers whose names are read. A database differs if a server lacks it or has another number of documents. */
export function compare(states: ServerState[]): Comparison[] {
  const lists = states.map(({ names = [], figures }) => ({ names: new Set(names), figures }));
  const dbs = [...new Set(lists.flatMap(({ names }) => [...names]))].sort((a, b) => (a < b ? -1 : 1));
  return dbs.map((db) => {
    const infos = lists.map(({ names, figures }) => (names.has(db) ? figures.get(db) : null));
    const known = infos.filter((info) => info !== undefined);
    return { db, infos, differs: new Set(known.map((info) => info?.doc_count)).size > 1 };
  });
}
