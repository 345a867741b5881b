/** Requests of a component to the server: once, repeated by hand, or every few seconds while the page is visible. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { logins } from '../api/session.ts';
import { useSignal } from './signal.ts';

export interface Asked<T> {
  data: T | undefined;
  error: Error | undefined;
  loading: boolean;
  again: () => void;
  /** Shows this instead, until the server is asked again: what a write has made of it. */
  put: (data: T) => void;
}

/** `old`: what is shown while a new question waits for its answer, as for each letter of a search. */
export function useAsk<T>(ask: (signal: AbortSignal) => Promise<T>, deps: unknown[], everyMs = 0, old: 'gone' | 'shown' = 'gone'): Asked<T> {
  const [state, set] = useState<{ data: T | undefined; error: Error | undefined; loading: boolean }>({ data: undefined, error: undefined, loading: true });
  const [turn, bump] = useState(0);
  const session = useSignal(logins);
  const latest = useRef(ask);
  latest.current = ask;
  const known = useRef<unknown[]>(deps);
  useEffect(() => {
    const control = new AbortController();
    // What belongs to another question is no answer to this one.
    const isSame = old === 'shown' || known.current.every((dep, index) => Object.is(dep, deps[index]));
    known.current = deps;
    set((before) => ({ data: isSame ? before.data : undefined, error: isSame ? before.error : undefined, loading: true }));
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = async () => {
      try {
        if (everyMs === 0 || !document.hidden) {
          const data = await latest.current(control.signal);
          if (!control.signal.aborted) set({ data, error: undefined, loading: false });
        }
      } catch (error) {
        if (!control.signal.aborted) set((before) => ({ ...before, error: error as Error, loading: false }));
      }
      if (everyMs > 0 && !control.signal.aborted) timer = setTimeout(() => void look(), everyMs);
    };
    void look();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [...deps, turn, session, everyMs]);
  const again = useCallback(() => bump((n) => n + 1), []);
  const put = useCallback((data: T) => set((before) => ({ ...before, data })), []);
  return { ...state, again, put };
}

/** The value, once it has not changed for a while. */
export function useSettled<T>(value: T, ms: number): T {
  const [settled, set] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => set(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

/** An action of a button: it runs once at a time, and says what went wrong. */
export function useAction(): { busy: boolean; error: Error | undefined; run: (act: () => Promise<unknown>) => Promise<boolean>; clear: () => void } {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const isOn = useRef(true);
  useEffect(() => () => void (isOn.current = false), []);
  const run = useCallback(async (act: () => Promise<unknown>) => {
    setBusy(true);
    setError(undefined);
    try {
      await act();
      return true;
    } catch (problem) {
      if (isOn.current) setError(problem as Error);
      return false;
    } finally {
      if (isOn.current) setBusy(false);
    }
  }, []);
  return { busy, error, run, clear: useCallback(() => setError(undefined), []) };
}
