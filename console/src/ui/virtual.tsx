/**
 * A virtual list: only the visible rows are in the DOM. All rows have the same height. `onNear` is called close to an end, and the list
 * may grow at both ends; the scroll position is adjusted so that visible rows do not move.
 */
import type { ComponentChildren } from 'preact';
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

interface VirtualProps {
  label: string;
  count: number;
  height: number;
  row: (index: number, active: boolean) => ComponentChildren;
  head?: ComponentChildren;
  /** Number of rows added before the first row minus the number of rows removed there. */
  shift?: number;
  /** The list is scrolled to its start when this changes. */
  order?: string;
  onNear?: (end: 'first' | 'last') => void;
  onTop?: (index: number) => void;
  onOpen?: (index: number) => void;
  onPick?: (index: number) => void;
  /** Called for F2 on a row. */
  onEdit?: (index: number) => void;
}

/** Number of rendered rows above and below the visible part. */
const OVERSCAN = 12;

export function Virtual({ label, count, height, row, head, shift = 0, order, onNear, onTop, onOpen, onPick, onEdit }: VirtualProps) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [active, setActive] = useState(-1);
  const before = useRef(shift);
  const measure = useCallback(() => {
    const at = box.current;
    if (at) setView({ top: at.scrollTop, height: at.clientHeight });
  }, []);
  useLayoutEffect(() => {
    const delta = shift - before.current;
    before.current = shift;
    if (delta === 0 || !box.current) return;
    box.current.scrollTop += delta * height;
    setActive((old) => (old < 0 ? old : old + delta));
    measure();
  }, [shift, height, measure]);
  const lastOrder = useRef(order);
  useLayoutEffect(() => {
    if (lastOrder.current === order) return;
    lastOrder.current = order;
    if (box.current) box.current.scrollTop = 0;
    setActive(-1);
    measure();
  }, [order, measure]);
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, [measure]);
  const first = Math.max(0, Math.floor(view.top / height) - OVERSCAN);
  const last = Math.min(count, Math.ceil((view.top + view.height) / height) + OVERSCAN);
  useEffect(() => {
    if (count === 0) return;
    if (last + OVERSCAN >= count) onNear?.('last');
    if (first <= OVERSCAN) onNear?.('first');
    onTop?.(Math.min(count - 1, Math.floor(view.top / height)));
  }, [first, last, count]);
  const move = (to: number) => {
    const next = Math.max(0, Math.min(count - 1, to));
    setActive(next);
    const at = box.current;
    if (!at) return;
    const rowTop = next * height;
    const headHeight = at.querySelector<HTMLElement>('.virtual-head')?.offsetHeight ?? 0;
    if (rowTop < at.scrollTop) at.scrollTop = rowTop;
    else if (rowTop + height + headHeight > at.scrollTop + at.clientHeight) at.scrollTop = rowTop + height + headHeight - at.clientHeight;
  };
  const page = Math.max(1, Math.floor(view.height / height) - 1);
  const steps: Record<string, () => void> = {
    ArrowDown: () => move(active + 1), ArrowUp: () => move(active - 1), PageDown: () => move(active + page), PageUp: () => move(active - page),
    Home: () => move(0), End: () => move(count - 1),
    Enter: () => { if (active >= 0) onOpen?.(active); },
    ' ': () => { if (active >= 0) onPick?.(active); },
    F2: () => { if (active >= 0) onEdit?.(active); },
  };
  const onKeyDown = (event: KeyboardEvent) => {
    // Keys on a focused link or checkbox within a row keep their default action.
    const step = steps[event.key];
    if (event.target !== box.current || !step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    step();
  };
  const shown = [];
  for (let index = first; index < last; index += 1) {
    shown.push(<div key={index - shift} class="virtual-row" style={{ top: `${index * height}px`, height: `${height}px` }}>{row(index, index === active)}</div>);
  }
  return (
    <div ref={box} class="virtual" tabIndex={0} role="region" aria-label={label} onScroll={measure} onKeyDown={onKeyDown}>
      {head && <div class="virtual-head">{head}</div>}
      <div class="virtual-body" style={{ height: `${count * height}px` }}>{shown}</div>
    </div>
  );
}
