/** Observable values. `useSignal` renders the component again after a change. */
import { useEffect, useState } from 'preact/hooks';

export interface Signal<T> {
  value: T;
  subscribe(listener: () => void): () => void;
}

export function signal<T>(initial: T): Signal<T> {
  let value = initial;
  const listeners = new Set<() => void>();
  return {
    get value() {
      return value;
    },
    set value(next: T) {
      value = next;
      for (const listener of listeners) listener();
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

export function useSignal<T>(source: Signal<T>): T {
  const [, bump] = useState(0);
  useEffect(() => source.subscribe(() => bump((n) => n + 1)), [source]);
  return source.value;
}
