/**
 * Pages with a chosen number of rows, as an alternative to the list that grows while it is scrolled. A page is a part of the loaded
 * rows; the next page is loaded before it is shown. The address contains the number of rows, and `localStorage` the last choice.
 */
import { useEffect, useState } from 'preact/hooks';
import { useParam } from '../router.ts';
import { Button, Select } from './kit.tsx';
import type { Paged } from './pager.ts';
import { number } from './words.ts';

const KEY = 'settee-rows-per-page';
/** Value for a list that grows while it is scrolled. */
const ENDLESS = 'all';
const SIZES = ['25', '50', '100', '250', '500'];

export interface RowPage {
  /** The rows of the page, or all loaded rows of an endless list. */
  shown: Paged;
  /** Identifies the page: a list must be scrolled to its start if this changes. */
  key: string;
  isPage: boolean;
  /** The controls, which belong below the list. */
  controls: preact.ComponentChild;
}

function storedSize(): string {
  try {
    return localStorage.getItem(KEY) ?? ENDLESS;
  } catch {
    return ENDLESS;
  }
}

/** `list` identifies the list; another list starts with its first page. `paged.offset` is the position of the first row in the list. */
export function useRowPages(paged: Paged, list: string): RowPage {
  const [chosen, setChosen] = useParam('rows', storedSize());
  const size = /^[1-9]\d{0,2}$/.test(chosen) ? Number(chosen) : 0;
  const [state, setState] = useState({ list, start: 0 });
  // Positions are relative to the first row that was loaded, so that rows loaded before it do not change them.
  const index = pageStart(state.list === list ? state.start + paged.shift : 0, size, paged);
  const isBefore = index < 0;
  const isMissing = size > 0 && paged.rows.length > 0 && (isBefore || (!paged.atLast && index + 2 * size > paged.rows.length));
  useEffect(() => {
    if (isMissing && !paged.loading && !paged.error) paged.near(isBefore ? 'first' : 'last');
  }, [isMissing, isBefore, paged.loading, paged.rows.length]);
  const choose = (next: string) => {
    try {
      localStorage.setItem(KEY, next);
    } catch {
      // Without storage the choice is lost when the page is closed.
    }
    setState({ list, start: Math.max(0, index) - paged.shift });
    setChosen(next, true);
  };
  const options: [string, string][] = [[ENDLESS, 'all, while scrolling'], ...[...new Set([...SIZES, ...(size > 0 ? [chosen] : [])])].map((each): [string, string] => [each, each])];
  const select = <Select label="Rows per page" value={size === 0 ? ENDLESS : chosen} onValue={choose} options={options} />;
  if (size === 0) return { shown: paged, key: '', isPage: false, controls: <div class="row-pages">{select}</div> };
  const rows = isBefore ? [] : paged.rows.slice(index, index + size);
  const offset = paged.atFirst ? index : paged.offset === undefined ? undefined : paged.offset + index;
  const move = (by: number) => setState({ list, start: index - paged.shift + by });
  const shown = { ...paged, rows, offset, shift: 0, atFirst: paged.atFirst && index === 0, atLast: paged.atLast && index + size >= paged.rows.length, near: () => {} };
  const controls = (
    <div class="row-pages">
      {offset !== undefined && rows.length > 0 && <span role="status">{number(offset + 1)} to {number(offset + rows.length)}</span>}
      <Button disabled={isBefore || shown.atFirst} onClick={() => move(-size)}>Previous</Button>
      <Button disabled={isBefore || index + size >= paged.rows.length} onClick={() => move(size)}>Next</Button>
      {select}
    </div>
  );
  return { shown, key: String(index - paged.shift), isPage: true, controls };
}

/** Returns the index of the first row of a page. It is negative while rows before the loaded ones are needed. */
function pageStart(index: number, size: number, { rows, atFirst, atLast }: Paged): number {
  if (index < 0 && atFirst) return 0;
  // Rows of the last page can be deleted.
  return atLast && index >= rows.length ? Math.max(0, rows.length - size) : index;
}
