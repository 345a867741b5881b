/** The control in the head of a sortable column. The icon and the hidden text are its state, the title is the action of a click. */
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { Sort } from '../json/rows.ts';
import { Icon } from './icons.tsx';

interface SortProps {
  name: string;
  text?: string;
  sort: Sort | undefined;
  onSort: (sort: Sort | undefined) => void;
}

/** Name of the column of the last click. */
let clicked: string | undefined;

/** A first click sorts in ascending order, a second one in descending order, and a third one restores the order of the server. */
export function SortButton({ name, text = name, sort, onSort }: SortProps) {
  const button = useRef<HTMLButtonElement>(null);
  // A list that is loaded in another order replaces its head. Its button keeps the focus for the next key.
  useEffect(() => {
    if (clicked === name && document.activeElement === document.body) button.current?.focus();
  }, []);
  const isOn = sort?.name === name;
  const next = !isOn ? { name, descending: false } : sort.descending ? undefined : { name, descending: true };
  const action = next === undefined ? 'Restore the order of the server' : `Sort by ${text}, ${next.descending ? 'descending' : 'ascending'}`;
  return (
    <button ref={button} type="button" class="sort" title={action} onClick={() => { clicked = name; onSort(next); }}>
      <span class="cut">{text}</span>{isOn && <><Icon name={sort.descending ? 'down' : 'up'} size={12} /><span class="unseen">sorted {sort.descending ? 'descending' : 'ascending'}</span></>}
    </button>
  );
}

/** Head of a sortable column of a `<table>`. */
export function SortHead({ kind, style, children, ...props }: SortProps & { kind?: string; style?: Record<string, string>; children?: ComponentChildren }) {
  const { name, sort } = props;
  const order = sort?.name === name ? (sort.descending ? 'descending' : 'ascending') : 'none';
  return <th scope="col" class={kind ?? ''} {...(style ? { style } : {})} aria-sort={order}><SortButton {...props} />{children}</th>;
}
