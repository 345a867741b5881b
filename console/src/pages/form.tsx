/** The members of a document as fields. The form has no state of its own but the text, so drafts and the JSON beside it follow each key. */
import { useEffect, useMemo, useState } from 'preact/hooks';
import { TYPES, add, converted, isNumber, move, remove, rename, setValue, typeOf, type Path, type ValueType } from '../json/form.ts';
import { documentProblems } from '../json/problems.ts';
import { JsonError, parse, place, plain, raw, type Node } from '../json/text.ts';
import { Icon } from '../ui/icons.tsx';
import { Button, Field, Notice, Select } from '../ui/kit.tsx';
import { number, plural } from '../ui/words.ts';

/** A larger document would be read again for too long after each key. */
const DOCUMENT_CHARS_MAX = 1_000_000;
/** A longer string is edited with the editor of strings. */
const STRING_CHARS_MAX = 20_000;
/** Children that are shown at first, and with each further step. */
const SHOWN = 100;
/** From this depth on, values are closed at first. */
const OPEN_DEPTH = 3;
const ROWS_MAX = 8;
const LINE_CHARS = 60;
const NAMES: [ValueType, string][] = TYPES.map((type) => [type, type]);

interface FormProps {
  /** What the form shows. */
  text: string;
  /** The newest text, which edits start from. */
  now: () => string;
  onText: (text: string) => void;
  readOnly?: boolean;
  /** True if the id may be edited. */
  isNew?: boolean;
}

interface Shared extends Omit<FormProps, 'now' | 'onText'> {
  edit: (change: (text: string) => string) => void;
}

export function DocumentForm({ text, now, onText, readOnly = false, isNew = false }: FormProps) {
  const read = useMemo(() => (text.length > DOCUMENT_CHARS_MAX ? undefined : parsed(text)), [text]);
  const marks = useMemo(() => (read?.root ? documentProblems(text) : []), [read]);
  if (!read) return <Notice>The form edits documents of up to {number(DOCUMENT_CHARS_MAX)} characters. This one is edited as JSON.</Notice>;
  if (!read.root) return <Notice kind="warn">{read.problem} The form continues when the JSON is corrected.</Notice>;
  const edit = (change: (text: string) => string) => {
    try {
      onText(change(now()));
    } catch (error) {
      // The JSON is being edited, and the form shows its newest state next.
      if (!(error instanceof JsonError)) throw error;
    }
  };
  return (
    <div class="form-tree" role="group" aria-label="Fields of the document">
      {marks.map((mark) => <p key={mark.from} class="hint problem">{mark.message}.</p>)}
      <Children text={text} node={read.root} path={[]} label="" edit={edit} readOnly={readOnly} isNew={isNew} />
    </div>
  );
}

function parsed(text: string): { root?: Node; problem?: string } {
  try {
    const root = parse(text);
    return root.kind === 'object' ? { root } : { problem: 'A document is an object.' };
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return { problem: `Line ${place(text, error.at).line}: ${error.message}.` };
  }
}

interface NodeProps extends Shared {
  node: Node;
  path: Path;
  /** The path as it is read: `lines[0].sku`. */
  label: string;
}

const labelOf = (label: string, name: string | undefined, index: number) => (name === undefined ? `${label}[${index}]` : label === '' ? name : `${label}.${name}`);

function Children({ node, path, label, ...shared }: NodeProps) {
  const [shown, setShown] = useState(SHOWN);
  const children = node.children ?? [];
  const rest = children.length - shown;
  return (
    <>
      {children.slice(0, shown).map((child, index) => <Member key={index} {...shared} node={child} path={[...path, index]} label={labelOf(label, node.keys?.[index], index)} name={node.keys?.[index]} siblings={node.keys ?? []} last={index === children.length - 1} />)}
      {rest > 0 && <div><Button onClick={() => setShown(shown + SHOWN)}>Show {number(Math.min(rest, SHOWN))} more of {number(children.length)}</Button></div>}
      {!shared.readOnly && <Adder isObject={node.kind === 'object'} names={node.keys ?? []} label={label} onAdd={(name, type) => { setShown((old) => Math.max(old, children.length + 1)); shared.edit((text) => add(text, path, name, type)); }} />}
    </>
  );
}

interface MemberProps extends NodeProps {
  /** Absent in an array. */
  name: string | undefined;
  siblings: string[];
  last: boolean;
}

/** Members that the server sets, or that have a page of their own. */
const FIXED = new Set(['_rev', '_attachments', '_conflicts', '_revisions', '_deleted']);

function Member({ name, siblings, last, ...props }: MemberProps) {
  const { text, node, path, label, edit, readOnly, isNew } = props;
  const type = typeOf(text, node);
  const isContainer = type === 'object' || type === 'array';
  const isTop = path.length === 1;
  const isFixed = readOnly || (isTop && name !== undefined && (FIXED.has(name) || (name === '_id' && !isNew)));
  const [isOpen, setOpen] = useState(path.length < OPEN_DEPTH && (node.children?.length ?? 0) <= SHOWN && name !== '_attachments');
  const count = node.children?.length ?? 0;
  const index = path.at(-1) ?? 0;
  return (
    <div class="form-member">
      <div class="form-row">
        {name === undefined || isFixed || (isTop && name === '_id') ? <span class="mono form-name cut" title={label}>{name ?? `[${index}]`}</span> : <Name name={name} label={label} siblings={siblings} onName={(next) => edit((old) => rename(old, path, next))} />}
        {isContainer
          ? <button type="button" class="form-toggle" aria-expanded={isOpen} aria-label={`${label}, ${plural(count, type === 'object' ? 'member' : 'item')}`} onClick={() => setOpen(!isOpen)}><Icon name={isOpen ? 'down' : 'right'} size={12} /><span>{plural(count, type === 'object' ? 'member' : 'item')}</span></button>
          : <Value {...props} type={type} readOnly={isFixed} />}
        {isFixed || (isTop && name === '_id') ? <span class="note">{type}</span> : (
          <span class="form-tools">
            <Select label={`Type of ${label}`} hideLabel value={type} options={NAMES} onValue={(next) => edit((old) => setValue(old, path, converted(old, nodeAt(old, path), next as ValueType)))} />
            {name === undefined && <><Button kind="quiet" icon="up" label={`Move ${label} up`} disabled={index === 0} onClick={() => edit((old) => move(old, path, -1))} /><Button kind="quiet" icon="down" label={`Move ${label} down`} disabled={last} onClick={() => edit((old) => move(old, path, 1))} /></>}
            <Button kind="quiet" icon="trash" label={`Remove ${label}`} onClick={() => edit((old) => remove(old, path))} />
          </span>
        )}
      </div>
      {isContainer && isOpen && <div class="form-children"><Children {...props} readOnly={isFixed} /></div>}
    </div>
  );
}

function nodeAt(text: string, path: Path): Node {
  let node = parse(text);
  for (const index of path) {
    const child = node.children?.[index];
    if (!child) throw new JsonError('The value is not there any more', node.start);
    node = child;
  }
  return node;
}

/** A name is applied when the field is left: a half-typed one may equal that of another member. */
function Name({ name, label, siblings, onName }: { name: string; label: string; siblings: string[]; onName: (name: string) => void }) {
  const [typed, setTyped] = useState(name);
  useEffect(() => setTyped(name), [name]);
  const isTaken = typed !== name && siblings.includes(typed);
  const apply = () => {
    if (typed === name) return;
    if (isTaken) setTyped(name);
    else onName(typed);
  };
  return <Field label={`Name of ${label}`} hideLabel mono value={typed} onValue={setTyped} onBlur={apply} onKeyDown={(event) => { if (event.key === 'Enter') apply(); }} problem={isTaken ? 'This name is in use.' : undefined} autocomplete="off" />;
}

function Value({ text, node, path, label, type, edit, readOnly = false }: NodeProps & { type: ValueType }) {
  const value = plain(text, node);
  const set = (next: string) => edit((old) => setValue(old, path, next));
  if (readOnly) return <span class="mono cut" title={value.slice(0, 500)}>{value.slice(0, 500)}</span>;
  if (type === 'null') return <span class="quiet-text mono">null</span>;
  if (type === 'boolean') return <Select label={label} hideLabel value={value} options={['true', 'false']} onValue={set} />;
  if (type === 'number') return <NumberField label={label} value={raw(text, node)} onValue={set} />;
  if (value.length > STRING_CHARS_MAX) return <span class="note">{number(value.length)} characters: use Edit a string.</span>;
  const lines = value.split('\n').reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / LINE_CHARS)), 0);
  return <textarea aria-label={label} rows={Math.min(ROWS_MAX, lines)} spellcheck={false} value={value} onInput={(event) => set(JSON.stringify(event.currentTarget.value))} />;
}

/** Numbers keep their digits. What is no number yet stays in the field and not in the document. */
function NumberField({ label, value, onValue }: { label: string; value: string; onValue: (value: string) => void }) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped((old) => (old.trim() === value ? old : value)), [value]);
  const isWrong = !isNumber(typed.trim());
  const take = (next: string) => {
    setTyped(next);
    if (isNumber(next.trim())) onValue(next.trim());
  };
  return <Field label={label} hideLabel mono inputmode="decimal" value={typed} onValue={take} onBlur={() => setTyped(value)} problem={isWrong ? `This is no number. The document keeps ${value}.` : undefined} autocomplete="off" />;
}

function Adder({ isObject, names, label, onAdd }: { isObject: boolean; names: string[]; label: string; onAdd: (name: string, type: ValueType) => void }) {
  const [name, setName] = useState('');
  const [type, setType] = useState<ValueType>('string');
  const isTaken = isObject && names.includes(name);
  const of = label === '' ? '' : ` of ${label}`;
  const submit = (event: Event) => {
    event.preventDefault();
    if (isTaken || (isObject && name === '')) return;
    onAdd(name, type);
    setName('');
  };
  return (
    <form class="form-row form-adder" onSubmit={submit}>
      {isObject ? <Field label={`Name of a new member${of}`} hideLabel mono value={name} onValue={setName} placeholder="New member" problem={isTaken ? 'This name is in use.' : undefined} autocomplete="off" /> : <span class="note">New item</span>}
      <Select label={`Type of the new ${isObject ? 'member' : 'item'}${of}`} hideLabel value={type} options={NAMES} onValue={(next) => setType(next as ValueType)} />
      <span class="form-tools"><Button type="submit" icon="plus" disabled={isObject && (name === '' || isTaken)}>Add</Button></span>
    </form>
  );
}
