/** A cell of the table of documents. A double click, or F2 on the row, edits the member in the cell. */
import { useEffect, useRef } from 'preact/hooks';
import { send } from '../api/http.ts';
import { docPath } from '../api/paths.ts';
import { getAt, setAt, typedValue } from '../json/edit.ts';
import type { Row } from '../json/rows.ts';
import { member, parse, plain, stringOf, withMembers } from '../json/text.ts';
import { Problem, showToast } from '../ui/kit.tsx';
import { useAction } from '../ui/use.ts';

export interface CellAt {
  id: string;
  name: string;
}

/** Saves one member based on the revision in the table. Returns the row of the new revision. */
export async function saveMember(db: string, row: Row, name: string, value: string | undefined): Promise<Row> {
  const { doc, id } = row;
  if (doc === undefined || id === undefined) throw new Error('The row has no document.');
  const body = setAt(withMembers(doc, { _conflicts: undefined }), [name], value);
  const { rev } = JSON.parse((await send('PUT', docPath(db, id), { body })).text) as { rev: string };
  return { ...row, value: JSON.stringify({ rev }), doc: withMembers(body, { _rev: JSON.stringify(rev) }) };
}

interface CellProps {
  db: string;
  row: Row;
  name: string;
  text: string;
  isEdited: boolean;
  /** Called to edit the cell `step` columns to the right, or no cell (`undefined`). */
  onEdit: (step: number | undefined) => void;
  onSaved: (row: Row) => void;
}

export function Cell({ isEdited, ...cell }: CellProps) {
  if (isEdited) return <Input {...cell} />;
  return <span title={cell.text} onDblClick={() => cell.onEdit(0)}>{cell.text}</span>;
}

function Input({ db, row, name, onEdit, onSaved }: Omit<CellProps, 'isEdited'>) {
  const old = row.doc === undefined ? undefined : getAt(row.doc, [name]);
  const start = old === undefined ? '' : plain(old, parse(old));
  const input = useRef<HTMLInputElement>(null);
  // True if the focus is lost because the input is disabled or removed. Only a click elsewhere must save.
  const isLeft = useRef(false);
  const { busy, error, run } = useAction();
  useEffect(() => input.current?.select(), []);
  const save = (step: number | undefined) => {
    const typed = input.current?.value ?? start;
    if (typed === start) {
      onEdit(step);
      return;
    }
    isLeft.current = true;
    void run(async () => {
      const saved = await saveMember(db, row, name, typedValue(old, typed));
      onSaved(saved);
      onEdit(step);
      const undo = () => { saveMember(db, saved, name, old).then(onSaved, (problem: Error) => showToast(`${name} was not restored: ${problem.message}`)); };
      showToast(`${name} of ${row.id ?? ''} is saved as ${stringOf(saved.doc ?? '', member(parse(saved.doc ?? '{}'), '_rev')) ?? ''}.`, { text: 'Undo', act: undo });
    }).then((isSaved) => { isLeft.current = isSaved; });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    event.stopPropagation();
    if (event.key === 'Escape') {
      isLeft.current = true;
      onEdit(undefined);
    }
    else if (event.key === 'Enter') save(undefined);
    else if (event.key === 'Tab') save(event.shiftKey ? -1 : 1);
    else return;
    event.preventDefault();
  };
  return (
    <span class="cell-edit">
      <input ref={input} class="mono" aria-label={`${name} of ${row.id ?? ''}`} defaultValue={start} disabled={busy} spellcheck={false} onKeyDown={onKeyDown} onBlur={() => { if (!isLeft.current && !error) save(undefined); }} />
      {error && <div class="cell-problem"><Problem error={error} /></div>}
    </span>
  );
}
