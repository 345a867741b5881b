/**
 * Drafts: edited text that is not saved on the server. Editors read their text from here, so that the text survives the
 * component, the page and, in IndexedDB, the browser. A draft contains the version of the object that was edited, to detect conflicts.
 */
export interface Draft {
  text: string;
  /** Version of the edited object: the revision, or the original text of objects without revisions. */
  base: string;
  /** Time of the last change in milliseconds of the Unix epoch. */
  at: number;
}

type Stored = Draft & { key: string };

/** Maximum length of a draft in IndexedDB. Documents are smaller with the default settings of servers. */
export const DRAFT_CHARS_MAX = 10_000_000;
/** Limit of the total length of all drafts. The oldest drafts are removed if it is exceeded. */
const ALL_CHARS_MAX = 40_000_000;
/** Drafts that were not changed for this time are removed. */
const KEPT_MS = 30 * 86_400_000;
/** Pause between two writes for each million characters written. */
const PAUSE_MS_PER_MILLION = 1000;
const STORE = 'drafts';
const DATABASE = 'settee-drafts';
/** Prefix of the `localStorage` keys of drafts that were not yet written to IndexedDB when the page was closed. */
const RESCUE = 'settee-drafts-rescue ';

const drafts = new Map<string, Draft>();
const listeners = new Map<string, Set<() => void>>();
/** Keys of drafts whose last change is not in IndexedDB. */
const dirty = new Set<string>();
let disk: IDBDatabase | undefined;
let writing = false;
let owner = '';

/** Returns a key with the server and the user, because each user of a server has separate drafts. */
export function fullKey(key: string[]): string {
  return JSON.stringify([owner, ...key]);
}

/** Selects the server and the user whose drafts are read and written. After a session has expired, its user remains the owner. */
export function setDraftOwner(server: string, user: string): void {
  const next = `${server} ${user}`;
  if (next === owner) return;
  owner = next;
  for (const all of listeners.values()) for (const listener of all) listener();
}

export function draft(key: string[]): Draft | undefined {
  return drafts.get(fullKey(key));
}

/** Stores a draft, or removes it if `next` is undefined. */
export function storeDraft(key: string[], next: { text: string; base: string } | undefined): void {
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

/** Timeout of IndexedDB at the start, because a blocked store must not prevent the console from opening. */
const READY_TIMEOUT_MS = 1000;
let ready: Promise<unknown> | undefined;

/** Resolves when the stored drafts are loaded or after the timeout. The first call starts loading. */
export function draftsReady(): Promise<unknown> {
  ready ??= Promise.race([loadDrafts(), new Promise((resolve) => setTimeout(resolve, READY_TIMEOUT_MS))]);
  return ready;
}

/** Loads the stored drafts. Without IndexedDB drafts are lost when the page is closed. */
async function loadDrafts(): Promise<void> {
  try {
    disk = await opened();
    const found = await answer(disk.transaction(STORE).objectStore(STORE).getAll() as IDBRequest<Stored[]>);
    for (const { key, text, base, at } of found) if (!drafts.has(key)) drafts.set(key, { text, base, at });
  } catch {
    disk = undefined;
  }
  restoreRescued();
  for (const key of outdated(drafts, Date.now())) {
    drafts.delete(key);
    dirty.add(key);
  }
  addEventListener('pagehide', saveBeforeClose);
  await write();
}

/** Returns the keys of drafts that are older than `KEPT_MS`, and of the oldest drafts that exceed the total length. */
export function outdated(all: ReadonlyMap<string, Draft>, now: number, maxChars = ALL_CHARS_MAX): string[] {
  let size = 0;
  return [...all].sort(([, a], [, b]) => b.at - a.at).filter(([, { text, at }]) => {
    size += text.length;
    return now - at > KEPT_MS || size > maxChars;
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
    request.onerror = () => reject(request.error ?? new Error('IndexedDB returned no reason'));
  });
}

/** Writes all changed drafts. Transactions are sequential. */
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
    // If the disk is full or the store was deleted, drafts stay in memory, and the page asks before it is closed.
    disk = undefined;
  } finally {
    writing = false;
  }
}

/** Returns true if closing the page would lose this draft. */
export function isAtRisk(key: string[]): boolean {
  const found = draft(key);
  return found !== undefined && (disk === undefined || found.text.length > DRAFT_CHARS_MAX);
}

/** Writes drafts to `localStorage`, which is synchronous, because a closing page may abort its last transaction. */
function saveBeforeClose(): void {
  for (const key of dirty) {
    const found = drafts.get(key);
    try {
      localStorage.setItem(RESCUE + key, JSON.stringify(found ?? null));
    } catch {
      // `localStorage` is full: the draft is lost unless the last transaction is committed.
    }
  }
}

function restoreRescued(): void {
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
    // `localStorage` is not available, so it contains no drafts.
  }
}
