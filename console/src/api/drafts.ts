/**
 * Typed text that is not saved yet. Every editor reads its text from here, so the text outlives the component, the page and,
 * in IndexedDB, the browser. A draft names the version of the object that it was typed on, which shows a conflict later.
 */
export interface Draft {
  text: string;
  /** The version that the text was typed on: a revision, or the old text of what has none. */
  base: string;
  /** When it was last changed, in milliseconds of the Unix epoch. */
  at: number;
}

type Stored = Draft & { key: string };

/** The longest text that is kept on disk; the servers' documents are smaller by default. */
export const DRAFT_CHARS_MAX = 10_000_000;
/** All drafts of a browser together; the oldest ones are removed beyond it. */
const ALL_CHARS_MAX = 40_000_000;
/** A draft that was not touched for this long is removed. */
const KEPT_MS = 30 * 86_400_000;
/** The pause between two writes of a draft is this long for each million characters. */
const PAUSE_MS_PER_MILLION = 1000;
const STORE = 'drafts';
const DATABASE = 'settee-drafts';
/** Where a page that is closed leaves what IndexedDB has not taken yet. */
const RESCUE = 'settee-drafts-rescue ';

const drafts = new Map<string, Draft>();
const listeners = new Map<string, Set<() => void>>();
/** Keys whose newest state is not on disk yet. */
const dirty = new Set<string>();
let disk: IDBDatabase | undefined;
let writing = false;
let owner = '';

/** Drafts belong to a server and to the user who typed them. */
export function fullKey(key: string[]): string {
  return JSON.stringify([owner, ...key]);
}

/** Says whose drafts are read and written from now on. The user of an expired session stays the owner. */
export function ownDrafts(server: string, user: string): void {
  const next = `${server} ${user}`;
  if (next === owner) return;
  owner = next;
  for (const all of listeners.values()) for (const listener of all) listener();
}

export function draft(key: string[]): Draft | undefined {
  return drafts.get(fullKey(key));
}

/** Keeps a draft, or removes it (`undefined`). */
export function keep(key: string[], next: { text: string; base: string } | undefined): void {
  const name = fullKey(key);
  if (next) drafts.set(name, { ...next, at: Date.now() });
  else if (!drafts.delete(name)) return;
  dirty.add(name);
  void write();
  for (const listener of listeners.get(JSON.stringify(key)) ?? []) listener();
}

export function onDraft(key: string[], listener: () => void): () => void {
  const name = JSON.stringify(key);
  const all = listeners.get(name) ?? new Set();
  listeners.set(name, all.add(listener));
  return () => {
    all.delete(listener);
    if (all.size === 0) listeners.delete(name);
  };
}

/** A store that does not answer must not keep the console from being shown. */
const READY_MS = 1000;
let ready: Promise<unknown> | undefined;

/** Waits until the drafts of earlier visits are read; the first call starts that. */
export function draftsReady(): Promise<unknown> {
  ready ??= Promise.race([loadDrafts(), new Promise((resolve) => setTimeout(resolve, READY_MS))]);
  return ready;
}

/** Reads the drafts of earlier visits. Without IndexedDB drafts live as long as the page. */
async function loadDrafts(): Promise<void> {
  try {
    disk = await opened();
    const found = await answer(disk.transaction(STORE).objectStore(STORE).getAll() as IDBRequest<Stored[]>);
    for (const { key, text, base, at } of found) if (!drafts.has(key)) drafts.set(key, { text, base, at });
  } catch {
    disk = undefined;
  }
  rescue();
  for (const key of outdated(drafts, Date.now())) {
    drafts.delete(key);
    dirty.add(key);
  }
  addEventListener('pagehide', leave);
  await write();
}

/** The drafts that are too old, and the oldest beyond what all may have together. */
export function outdated(all: ReadonlyMap<string, Draft>, now: number, most = ALL_CHARS_MAX): string[] {
  let size = 0;
  return [...all].sort(([, a], [, b]) => b.at - a.at).filter(([, { text, at }]) => {
    size += text.length;
    return now - at > KEPT_MS || size > most;
  }).map(([key]) => key);
}

function opened(): Promise<IDBDatabase> {
  const request = indexedDB.open(DATABASE, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: 'key' });
  return answer(request);
}

function answer<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error('IndexedDB gives no reason'));
  });
}

/** Writes what is dirty, one transaction after the other. */
async function write(): Promise<void> {
  if (writing || !disk) return;
  writing = true;
  try {
    while (dirty.size > 0) {
      const now = [...dirty];
      dirty.clear();
      let size = 0;
      const transaction = disk.transaction(STORE, 'readwrite');
      for (const key of now) {
        const found = drafts.get(key);
        size += found?.text.length ?? 0;
        if (found && found.text.length <= DRAFT_CHARS_MAX) transaction.objectStore(STORE).put({ key, ...found });
        else transaction.objectStore(STORE).delete(key);
      }
      const done = new Promise((resolve, reject) => {
        transaction.oncomplete = resolve;
        transaction.onabort = () => reject(transaction.error ?? new Error('the transaction is aborted'));
      });
      transaction.commit();
      await done;
      const pause = (size / 1_000_000) * PAUSE_MS_PER_MILLION;
      if (dirty.size > 0 && pause > 20) await new Promise((resolve) => setTimeout(resolve, pause));
    }
  } catch {
    // The disk is full or the store is gone: drafts live in memory, and the page asks before it is closed.
    disk = undefined;
  } finally {
    writing = false;
  }
}

/** True if closing the page loses this draft. */
export function isAtRisk(key: string[]): boolean {
  const found = draft(key);
  return found !== undefined && (disk === undefined || found.text.length > DRAFT_CHARS_MAX);
}

/** The last transaction may not finish once the page is closed: `localStorage` takes the text at once. */
function leave(): void {
  for (const key of dirty) {
    const found = drafts.get(key);
    try {
      localStorage.setItem(RESCUE + key, JSON.stringify(found ?? null));
    } catch {
      // There is no space for it.
    }
  }
}

function rescue(): void {
  try {
    for (const name of Object.keys(localStorage).filter((each) => each.startsWith(RESCUE))) {
      const key = name.slice(RESCUE.length);
      const found = JSON.parse(localStorage.getItem(name) ?? 'null') as Draft | null;
      const known = drafts.get(key);
      if (found && found.at >= (known?.at ?? 0)) drafts.set(key, found);
      else if (!found) drafts.delete(key);
      dirty.add(key);
      localStorage.removeItem(name);
    }
  } catch {
    // Without storage nothing was left there.
  }
}
