/** The colour theme: that of the system until the user selects one. */
export type Theme = 'system' | 'light' | 'dark';

const KEY = 'settee-theme';
const listeners = new Set<() => void>();

export function theme(): Theme {
  const stored = localStorage.getItem(KEY);
  return stored === 'light' || stored === 'dark' ? stored : 'system';
}

export function isDark(): boolean {
  const chosen = theme();
  return chosen === 'system' ? matchMedia('(prefers-color-scheme: dark)').matches : chosen === 'dark';
}

export function setTheme(next: Theme): void {
  if (next === 'system') localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, next);
  apply();
}

export function apply(): void {
  document.documentElement.dataset['theme'] = isDark() ? 'dark' : 'light';
  for (const listener of listeners) listener();
}

export function onTheme(act: () => void): () => void {
  listeners.add(act);
  return () => void listeners.delete(act);
}

export function startTheme(): void {
  apply();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', apply);
}
