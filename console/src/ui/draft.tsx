/** Hooks for texts and forms whose unsaved changes are stored as drafts, and the notice about a restored draft. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { draft, fullKey, isAtRisk, storeDraft, onDraft, type Draft } from '../api/drafts.ts';
import { Button, Notice } from './kit.tsx';
import { ago } from './words.ts';

export interface DraftState {
  text: string;
  setText: (text: string) => void;
  isChanged: boolean;
  /** True if the draft is based on another version than the loaded one. */
  isStale: boolean;
  /** The draft that existed when the editor was opened. */
  restored: Draft | undefined;
  discard: () => void;
  /** Returns the newest text, also after the component is unmounted. */
  now: () => string;
  replace: (text: string, base: string) => void;
  /** Must be called after `sent` was saved. Text that was typed since the request remains a draft, based on `next`. */
  saved: (sent: string, next?: { base: string; rebase: (text: string) => string }) => void;
}

/** Returns the text of an editor: the draft, or `original` without one. `base` is the version of `original`. */
export function useDraft(key: string[], original: string, base: string): DraftState {
  const name = fullKey(key);
  const [, bump] = useState(0);
  useEffect(() => onDraft(key, () => bump((n) => n + 1)), [name]);
  const found = draft(key);
  // A draft counts as restored only if it existed when the editor was opened.
  const initial = useRef<{ name: string; found: Draft | undefined }>();
  if (initial.current?.name !== name) initial.current = { name, found };
  if (!found) initial.current.found = undefined;
  useUnloadGuard(isAtRisk(key));
  const setText = (text: string) => {
    const typedOn = draft(key)?.base ?? base;
    storeDraft(key, text === original && typedOn === base ? undefined : { text, base: typedOn });
  };
  const saved: DraftState['saved'] = (sent, next) => {
    const now = draft(key);
    if (!now || now.text === sent) storeDraft(key, undefined);
    else storeDraft(key, { text: next ? next.rebase(now.text) : now.text, base: next?.base ?? now.base });
  };
  return { text: found?.text ?? original, setText, isChanged: found !== undefined, isStale: found !== undefined && found.base !== base, restored: initial.current.found, discard: () => storeDraft(key, undefined), now: () => draft(key)?.text ?? original, replace: (text, newBase) => storeDraft(key, { text, base: newBase }), saved };
}

export interface LinkedDraft {
  text: string;
  setText: (text: string) => void;
  /** Must be called after the address was set to this text. */
  linked: (text: string) => void;
  now: () => string;
  restored: Draft | undefined;
  discard: () => void;
}

/**
 * Returns text that is also stored in the address after it was submitted; `inAddress` is empty if the address has no text. If the draft
 * is not based on the text in the address, the address comes from a link and takes precedence.
 */
export function useLinkedDraft(key: string[], inAddress: string, start: string): LinkedDraft {
  const kept = useDraft(key, start, inAddress);
  const usesDraft = kept.isChanged && (inAddress === '' || !kept.isStale);
  return {
    text: usesDraft ? kept.text : inAddress || start,
    setText: (text) => storeDraft(key, text === start && inAddress === '' ? undefined : { text, base: inAddress }),
    linked: (text) => { if (draft(key)) storeDraft(key, { text: draft(key)?.text ?? text, base: text }); },
    now: () => {
      const found = draft(key);
      return found && (inAddress === '' || found.base === inAddress) ? found.text : inAddress || start;
    },
    // Text in the address was submitted, so no notice is needed.
    restored: usesDraft && kept.text !== inAddress ? kept.restored : undefined,
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

/** Returns the fields of a form, which are stored as one draft. `secrets` are kept in memory until the form is closed. */
export function useForm<T extends object>(key: string[], original: T, secrets: (keyof T)[] = []): Form<T> {
  const plain = (value: T) => JSON.stringify({ ...value, ...Object.fromEntries(secrets.map((name) => [name, original[name]])) });
  const kept = useDraft(key, plain(original), plain(original));
  const [secretValues, setSecretValues] = useState<Partial<T>>({});
  const value = { ...original, ...read<T>(kept.text), ...secretValues };
  const set = (change: Partial<T>) => {
    const newest = { ...original, ...read<T>(draft(key)?.text ?? kept.text), ...change };
    const secret = Object.entries(change).filter(([name]) => secrets.includes(name as keyof T));
    if (secret.length > 0) setSecretValues((old) => ({ ...old, ...Object.fromEntries(secret) }));
    kept.setText(plain(newest));
  };
  const discard = () => {
    setSecretValues({});
    kept.discard();
  };
  return { value, set, isChanged: kept.isChanged || Object.keys(secretValues).length > 0, restored: kept.restored, discard };
}

function read<T>(text: string): Partial<T> {
  try {
    return JSON.parse(text) as Partial<T>;
  } catch {
    return {};
  }
}

export function Restored({ found, onDiscard, children }: { found: Draft | undefined; onDiscard: () => void; children?: preact.ComponentChildren }) {
  if (!found) return null;
  return (
    <Notice kind="warn">
      <p>Restored an unsaved draft, last changed {ago(new Date(found.at))}. {children}</p>
      <p><Button onClick={onDiscard}>Discard the draft</Button></p>
    </Notice>
  );
}

/** Makes the browser ask for confirmation before the page is closed, until the returned function is called. */
export function guardUnload(): () => void {
  const before = (event: BeforeUnloadEvent) => event.preventDefault();
  addEventListener('beforeunload', before);
  return () => removeEventListener('beforeunload', before);
}

function useUnloadGuard(isOn: boolean): void {
  useEffect(() => (isOn ? guardUnload() : undefined), [isOn]);
}
