/** The command palette (Ctrl-K): search for pages, databases, documents and the actions of the current page. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { get } from '../api/http.ts';
import { path, query } from '../api/paths.ts';
import { server } from '../api/servers.ts';
import { isAdmin, permittedServers } from '../api/session.ts';
import { go, goTo, route } from '../router.ts';
import { Icon, type IconName } from './icons.tsx';
import { signal, useSignal } from './signal.ts';
import { useRequest, useSettled } from './use.ts';

export interface Command {
  text: string;
  where: string;
  icon: IconName;
  act: () => void;
}

export const paletteOpen = signal(false);
export const pageCommands = signal<Command[]>([]);

export function useCommands(commands: Command[], deps: unknown[]): void {
  useEffect(() => {
    pageCommands.value = commands;
    return () => { pageCommands.value = []; };
  }, deps);
}

const PAGES: [string, IconName, string[], boolean][] = [
  ['Databases', 'database', ['databases'], false],
  ['Dashboard', 'dashboard', ['dashboard'], true],
  ['Activity', 'activity', ['activity'], true],
  ['Replication', 'replicate', ['replication'], true],
  ['New replication', 'plus', ['replication', 'new'], true],
  ['Users', 'users', ['users'], true],
  ['Configuration', 'gear', ['config'], true],
  ['CORS', 'gear', ['config', 'cors'], true],
  ['Server', 'server', ['server'], true],
  ['Logs', 'logs', ['logs'], true],
  ['Slow requests', 'clock', ['slow'], true],
  ['Backups', 'history', ['backups'], true],
];

const DB_PAGES: [string, IconName, string][] = [
  ['New document', 'plus', 'new'], ['Upload documents', 'upload', 'upload'], ['Views and design documents', 'code', 'designs'], ['Mango query', 'filter', 'query'],
  ['Schema', 'table', 'schema'], ['View playground', 'flask', 'playground'], ['Changes', 'history', 'changes'], ['Settings', 'gear', 'settings'],
];

/** Matches letters in their order, with gaps: `usr` matches `users`. Returns a score, which is lower for smaller gaps, or undefined. */
export function match(text: string, typed: string): number | undefined {
  const [hay, needle] = [text.toLowerCase(), typed.toLowerCase()];
  const whole = hay.indexOf(needle);
  if (whole >= 0) return whole;
  let at = -1;
  let score = 100;
  for (const letter of needle) {
    const next = hay.indexOf(letter, at + 1);
    if (next < 0) return undefined;
    score += next - at;
    at = next;
  }
  return score;
}

export function Palette() {
  const open = useSignal(paletteOpen);
  return open ? <PaletteDialog /> : null;
}

function PaletteDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState('');
  const [at, setAt] = useState(0);
  const settled = useSettled(typed.trim(), 120);
  const [first, db] = route().path;
  const here = first === 'db' ? db : undefined;
  // A layout effect, so that the next key press reaches the input.
  useLayoutEffect(() => {
    dialog.current?.showModal();
    return () => dialog.current?.close();
  }, []);
  const databases = useRequest(async (signal) => (settled === '' && !isAdmin() ? [] : await get<string[]>(`_all_dbs${query(prefixRange(settled))}`, signal).catch(() => [])), [settled], 0, 'shown');
  const documents = useRequest(async (signal) => {
    if (here === undefined || settled === '') return [];
    const found = await get<{ rows: { id: string }[] }>(path`${here}/_all_docs` + query(prefixRange(settled)), signal).catch(() => ({ rows: [] }));
    return found.rows.map((row) => row.id);
  }, [settled, here], 0, 'shown');
  const own = useSignal(pageCommands);
  const commands = useMemo(() => {
    const to = (text: string, where: string, icon: IconName, ...path: string[]): Command => ({ text, where, icon, act: () => go(path) });
    const fixed = [
      ...own,
      ...(here === undefined ? [] : DB_PAGES.map(([text, icon, page]) => to(text, here, icon, 'db', here, page))),
      ...[...(server === '' ? [] : ['']), ...permittedServers.value.filter((name) => name !== server)].map((name): Command => ({ text: name || location.host, where: 'Server', icon: 'server', act: () => goTo(name) })),
      ...(isAdmin() ? [{ text: 'Servers', where: 'Page', icon: 'server' as const, act: () => goTo('', ['servers']) }] : []),
      ...PAGES.filter(([, , , admin]) => !admin || isAdmin()).map(([text, icon, path]) => to(text, 'Page', icon, ...path)),
    ];
    const found = fixed.map((command) => ({ command, score: match(command.text, typed.trim()) })).filter(({ score }) => score !== undefined);
    if (typed.trim() !== '') found.sort((a, b) => (a.score ?? 0) - (b.score ?? 0));
    // Results of the previous prefix are shown until the new ones arrive.
    const begins = (name: string) => name.startsWith(typed.trim());
    const names = [
      ...(here === undefined ? [] : (documents.data ?? []).filter(begins).map((id) => to(id, `Document in ${here}`, 'file', 'db', here, 'doc', id))),
      ...(databases.data ?? []).filter(begins).map((name) => to(name, 'Database', 'database', 'db', name)),
    ];
    // Names with the typed prefix precede pages that match only with gaps.
    const isClear = found.some(({ score }) => (score ?? 0) < 100);
    const pages = found.slice(0, 12).map(({ command }) => command);
    return typed.trim() === '' || isClear ? [...pages, ...names] : [...names, ...pages];
  }, [own, here, typed, databases.data, documents.data]);
  const close = () => { paletteOpen.value = false; };
  const run = (command: Command | undefined) => {
    if (!command) return;
    close();
    command.act();
  };
  const chosen = Math.min(at, commands.length - 1);
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (event.key === 'Enter') run(commands[chosen]);
    else if (step !== 0) setAt((chosen + step + commands.length) % Math.max(1, commands.length));
    else return;
    event.preventDefault();
  };
  useEffect(() => document.getElementById(`palette-${chosen}`)?.scrollIntoView({ block: 'nearest' }), [chosen]);
  return (
    <dialog ref={dialog} class="palette" aria-label="Go to" onCancel={(event) => { event.preventDefault(); close(); }} onClick={(event) => { if (event.target === dialog.current) close(); }}>
      <div class="palette-input">
        <Icon name="search" />
        <input role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant={commands.length > 0 ? `palette-${chosen}` : undefined} aria-label="Search pages, databases, documents and actions"
          placeholder="Pages, databases, documents, actions" value={typed} onInput={(event) => { setTyped(event.currentTarget.value); setAt(0); }} onKeyDown={onKeyDown} autocomplete="off" spellcheck={false} />
      </div>
      <ul id="palette-list" role="listbox" aria-label="Results">
        {commands.map((command, index) => (
          <li key={`${command.where} ${command.text}`} id={`palette-${index}`} role="option" aria-selected={index === chosen} onClick={() => run(command)} onPointerMove={() => setAt(index)}>
            <Icon name={command.icon} /><span class="cut">{command.text}</span><span class="where">{command.where}</span>
          </li>
        ))}
      </ul>
      {commands.length === 0 && <p class="said note right" role="status">No match.</p>}
      <div class="palette-foot"><span><kbd>↑</kbd> <kbd>↓</kbd> choose</span><span><kbd>Enter</kbd> go</span><span><kbd>Esc</kbd> close</span></div>
    </dialog>
  );
}

/** Returns the parameters of a range read of names with a prefix, whose cost does not depend on the number of names. */
function prefixRange(typed: string): Record<string, string | number> {
  return { limit: 8, ...(typed === '' ? {} : { startkey: JSON.stringify(typed), endkey: JSON.stringify(`${typed}\ufff0`) }) };
}
