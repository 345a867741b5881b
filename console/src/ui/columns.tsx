/** Columns of the table of documents. The address contains the chosen columns, and `localStorage` their widths. */
import { useRef, useState } from 'preact/hooks';
import { root } from '../api/paths.ts';
import { useParam } from '../router.ts';
import { Button, Check, Dialog } from './kit.tsx';

const WIDTH_MIN = 60;
const WIDTH_MAX = 1200;
const WIDTH_STEP = 20;
/** Start width for resizing a column by keyboard if its width is not set. */
const WIDTH_START = 160;

/** Returns the chosen columns; an empty list selects the most common members. */
export function useChosenColumns(): [string[], (names: string[]) => void] {
  const [text, setText] = useParam('cols');
  return [parseNames(text), (names) => setText(names.length === 0 ? '' : JSON.stringify(names), true)];
}

function parseNames(text: string): string[] {
  try {
    const found: unknown = JSON.parse(text || '[]');
    return Array.isArray(found) ? found.filter((name): name is string => typeof name === 'string') : [];
  } catch {
    return [];
  }
}

export type Widths = Record<string, number>;

/** Widths in pixels, by column name. */
export function useWidths(db: string): [Widths, (name: string, width: number) => void] {
  const key = `settee-columns ${root()} ${db}`;
  const [widths, set] = useState<Widths>(() => {
    try {
      return JSON.parse(localStorage.getItem(key) ?? '{}') as Widths;
    } catch {
      return {};
    }
  });
  const resize = (name: string, width: number) => {
    const next = { ...widths, [name]: Math.round(Math.max(WIDTH_MIN, Math.min(WIDTH_MAX, width))) };
    set(next);
    try {
      localStorage.setItem(key, JSON.stringify(next));
    } catch {
      // Without storage the widths are lost when the page is closed.
    }
  };
  return [widths, resize];
}

/** Edge of a column, which is dragged or moved with the arrow keys. */
export function ResizeHandle({ name, width, onWidth }: { name: string; width: number | undefined; onWidth: (width: number) => void }) {
  const start = useRef<{ x: number; width: number }>();
  const down = (event: PointerEvent) => {
    const at = event.currentTarget as HTMLElement;
    start.current = { x: event.clientX, width: at.parentElement?.offsetWidth ?? WIDTH_START };
    at.setPointerCapture(event.pointerId);
    event.preventDefault();
  };
  const move = (event: PointerEvent) => { if (start.current) onWidth(start.current.width + event.clientX - start.current.x); };
  const key = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowRight' ? WIDTH_STEP : event.key === 'ArrowLeft' ? -WIDTH_STEP : 0;
    if (step === 0) return;
    event.preventDefault();
    onWidth((width ?? (event.currentTarget as HTMLElement).parentElement?.offsetWidth ?? WIDTH_START) + step);
  };
  return <span class="grip" role="separator" aria-orientation="vertical" aria-label={`Width of ${name}`} aria-valuemin={WIDTH_MIN} aria-valuemax={WIDTH_MAX} aria-valuenow={width ?? WIDTH_START} tabIndex={0} onPointerDown={down} onPointerMove={move} onPointerUp={() => { start.current = undefined; }} onKeyDown={key} />;
}

/** `names` are the members of the loaded documents, the most common first. */
export function ColumnChoice({ names, shown, onChoose, onClose }: { names: string[]; shown: string[]; onChoose: (names: string[]) => void; onClose: () => void }) {
  const all = [...names, ...shown.filter((name) => !names.includes(name))];
  const toggle = (name: string, on: boolean) => onChoose(on ? [...shown, name] : shown.filter((each) => each !== name));
  return (
    <Dialog title="Columns" onClose={onClose}>
      <p class="note">Columns appear in the order in which they are chosen.</p>
      <div class="column-list">{all.map((name) => <Check key={name} label={name} checked={shown.includes(name)} onChecked={(on) => toggle(name, on)} />)}</div>
      <div class="actions end"><Button onClick={() => onChoose([])}>Most common columns</Button><Button kind="primary" onClick={onClose}>Done</Button></div>
    </Dialog>
  );
}
