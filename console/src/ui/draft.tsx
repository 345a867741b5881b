/** Texts and forms whose unsaved changes are kept as drafts, and the notice that says so. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { draft, fullKey, isAtRisk, keep, onDraft, type Draft } from '../api/drafts.ts';
import { Button, Notice } from './kit.tsx';
import { ago } from './words.ts';

export interface Drafted {
  text: string;
  setText: (text: string) => void;
  isChanged: boolean;
  /** The version that the text was typed on differs from the one on the page. */
  isStale: boolean;
  /** The draft of an earlier visit, for `Restored`. */
  restored: Draft | undefined;
  discard: () => void;
  /** The newest text, also after the component has gone. */
  now: () => string;
  /** Keeps this text as typed on that version. */
  move: (text: string, base: string) => void;
  /** What was sent is saved as `next`: text typed since the request stays unsaved. */
  saved: (sent: string, next?: { base: string; rebase: (text: string) => string }) => void;
}

/** The text of an editor: `original`, or what was typed over it. `base` is the version of the original. */
export function useDraft(key: string[], original: string, base: string): Drafted {
  const name = fullKey(key);
  const [, bump] = useState(0);
  useEffect(() => onDraft(key, () => bump((n) => n + 1)), [name]);
  const found = draft(key);
  // Only what was there when the editor appeared was restored; what is typed now needs no notice.
  const early = useRef<{ name: string; found: Draft | undefined }>();
  if (early.current?.name !== name) early.current = { name, found };
  if (!found) early.current.found = undefined;
  useUnloadGuard(isAtRisk(key));
  const setText = (text: string) => {
    const typedOn = draft(key)?.base ?? base;
    keep(key, text === original && typedOn === base ? undefined : { text, base: typedOn });
  };
  const saved: Drafted['saved'] = (sent, next) => {
    const now = draft(key);
    if (!now || now.text === sent) keep(key, undefined);
    else keep(key, { text: next ? next.rebase(now.text) : now.text, base: next?.base ?? now.base });
  };
  return { text: found?.text ?? original, setText, isChanged: found !== undefined, isStale: found !== undefined && found.base !== base, restored: early.current.found, discard: () => keep(key, undefined), now: () => draft(key)?.text ?? original, move: (text, on) => keep(key, { text, base: on }), saved };
}

export interface Linked {
  text: string;
  setText: (text: string) => void;
  /** The address now has this text. */
  linked: (text: string) => void;
  now: () => string;
  restored: Draft | undefined;
  discard: () => void;
}

/**
 * Text that is also in the address, once it is asked for. `inAddress` is empty without it. An address that the text was not typed
 * on comes from a link, and counts more than the draft.
 */
export function useLinkedDraft(key: string[], inAddress: string, start: string): Linked {
  const kept = useDraft(key, start, inAddress);
  const counts = kept.isChanged && (inAddress === '' || !kept.isStale);
  return {
    text: counts ? kept.text : inAddress || start,
    setText: (text) => keep(key, text === start && inAddress === '' ? undefined : { text, base: inAddress }),
    linked: (text) => { if (draft(key)) keep(key, { text: draft(key)?.text ?? text, base: text }); },
    now: () => {
      const found = draft(key);
      return found && (inAddress === '' || found.base === inAddress) ? found.text : inAddress || start;
    },
    // Text that the address has was asked for: nothing of it was left behind.
    restored: counts && kept.text !== inAddress ? kept.restored : undefined,
    discard: kept.discard,
  };
}

export interface Form<T> {
  value: T;
  set: (change: Partial<T>) => void;
  isChanged: boolean;
  restored: Draft | undefined;
  discard: () => void;
}

/** The fields of a form, kept as one draft. `secrets` are kept in memory only, and not after the form is left. */
export function useForm<T extends object>(key: string[], original: T, secrets: (keyof T)[] = []): Form<T> {
  const plain = (value: T) => JSON.stringify({ ...value, ...Object.fromEntries(secrets.map((name) => [name, original[name]])) });
  const kept = useDraft(key, plain(original), plain(original));
  const [hidden, hide] = useState<Partial<T>>({});
  const value = { ...original, ...read<T>(kept.text), ...hidden };
  const set = (change: Partial<T>) => {
    const newest = { ...original, ...read<T>(draft(key)?.text ?? kept.text), ...change };
    const secret = Object.entries(change).filter(([name]) => secrets.includes(name as keyof T));
    if (secret.length > 0) hide((old) => ({ ...old, ...Object.fromEntries(secret) }));
    kept.setText(plain(newest));
  };
  const discard = () => {
    hide({});
    kept.discard();
  };
  return { value, set, isChanged: kept.isChanged || Object.keys(hidden).length > 0, restored: kept.restored, discard };
}

function read<T>(text: string): Partial<T> {
  try {
    return JSON.parse(text) as Partial<T>;
  } catch {
    return {};
  }
}

/** Says that text of an earlier visit is shown. */
export function Restored({ found, onDiscard, children }: { found: Draft | undefined; onDiscard: () => void; children?: preact.ComponentChildren }) {
  if (!found) return null;
  return (
    <Notice kind="warn">
      <p>Restored what you typed {ago(new Date(found.at))} and did not save. {children}</p>
      <p><Button onClick={onDiscard}>Discard it</Button></p>
    </Notice>
  );
}

/** The browser asks before the page is closed. */
export function useUnloadGuard(isOn: boolean): void {
  useEffect(() => {
    if (!isOn) return;
    const before = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener('beforeunload', before);
    return () => removeEventListener('beforeunload', before);
  }, [isOn]);
}
