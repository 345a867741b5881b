/** Hooks for requests to the server and for actions. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { logins } from '../api/session.ts';
import { useSignal } from './signal.ts';

export interface RequestState<T> {
  data: T | undefined;
  error: Error | undefined;
  loading: boolean;
  again: () => void;
  /** Replaces the data until the next request, for the result of a write. */
  put: (data: T) => void;
}

/**
 * Sends a request when `deps` change, when `again` is called, after a login, and every `everyMs` milliseconds while the page is visible.
 * `old` determines if the data of the previous `deps` are shown until the response arrives.
 */
export function useRequest<T>(request: (signal: AbortSignal) => Promise<T>, deps: unknown[], everyMs = 0, old: 'gone' | 'shown' = 'gone'): RequestState<T> {
  const [state, set] = useState<{ data: T | undefined; error: Error | undefined; loading: boolean }>({ data: undefined, error: undefined, loading: true });
  const [reloads, bump] = useState(0);
  const session = useSignal(logins);
  const latest = useRef(request);
  latest.current = request;
  const lastDeps = useRef<unknown[]>(deps);
  useEffect(() => {
    const control = new AbortController();
    // Data of other `deps` must not be shown as the result of this request.
    const isSame = old === 'shown' || lastDeps.current.every((dep, index) => Object.is(dep, deps[index]));
    lastDeps.current = deps;
    set((before) => ({ data: isSame ? before.data : undefined, error: isSame ? before.error : undefined, loading: true }));
    let timer: ReturnType<typeof setTimeout> | undefined;
    const poll = async () => {
      try {
        if (everyMs === 0 || !document.hidden) {
          const data = await latest.current(control.signal);
          if (!control.signal.aborted) set({ data, error: undefined, loading: false });
        }
      } catch (error) {
        if (!control.signal.aborted) set((before) => ({ ...before, error: error as Error, loading: false }));
      }
      if (everyMs > 0 && !control.signal.aborted) timer = setTimeout(() => void poll(), everyMs);
    };
    void poll();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [...deps, reloads, session, everyMs]);
  const again = useCallback(() => bump((n) => n + 1), []);
  const put = useCallback((data: T) => set((before) => ({ ...before, data })), []);
  return { ...state, again, put };
}

/** Returns the value after it has not changed for `ms` milliseconds. */
export function useSettled<T>(value: T, ms: number): T {
  const [settled, set] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => set(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

/** Runs the action of a button. `run` resolves to false if the action fails; the error is in `error`. */
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
