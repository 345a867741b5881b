/** The members of a document as form fields. The text is the only state, so drafts and the JSON editor follow each key stroke. */
import { useEffect, useMemo, useState } from 'preact/hooks';
import { TYPES, add, converted, isNumber, move, remove, rename, setValue, typeOf, type Path, type ValueType } from '../json/form.ts';
import { documentProblems } from '../json/problems.ts';
import { JsonError, parse, positionOf, plain, raw, type Node } from '../json/text.ts';
import { Icon } from '../ui/icons.tsx';
import { Button, Field, Notice, Select } from '../ui/kit.tsx';
import { number, plural } from '../ui/words.ts';

/** Maximum length of a document in the form, because the document is parsed after each key stroke. */
const DOCUMENT_CHARS_MAX = 1_000_000;
/** Longer strings are edited in the string editor. */
const STRING_CHARS_MAX = 20_000;
/** Number of children that are shown initially and added by each click. */
const SHOWN = 100;
/** Values at this depth and below are collapsed initially. */
const OPEN_DEPTH = 3;
const ROWS_MAX = 8;
const LINE_CHARS = 60;
const NAMES: [ValueType, string][] = TYPES.map((type) => [type, type]);

interface FormProps {
  text: string;
  /** Returns the newest text, to which edits apply. It may be newer than the rendered `text`. */
  now: () => string;
  onText: (text: string) => void;
  readOnly?: boolean;
  /** True if the id can be edited. */
  isNew?: boolean;
}

interface Shared extends Omit<FormProps, 'now' | 'onText'> {
  edit: (change: (text: string) => string) => void;
}

export function DocumentForm({ text, now, onText, readOnly = false, isNew = false }: FormProps) {
  const read = useMemo(() => (text.length > DOCUMENT_CHARS_MAX ? undefined : parsed(text)), [text]);
  const marks = useMemo(() => (read?.root ? documentProblems(text) : []), [read]);
  if (!read) return <Notice>The form edits documents of up to {number(DOCUMENT_CHARS_MAX)} characters. This one is edited as JSON.</Notice>;
  if (!read.root) return <Notice kind="warn">{read.problem} The form is available when the JSON is corrected.</Notice>;
  const edit = (change: (text: string) => string) => {
    try {
      onText(change(now()));
    } catch (error) {
      // The JSON is edited concurrently; the form renders its newest state next.
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
    return root.kind === 'object' ? { root } : { problem: 'A document must be an object.' };
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return { problem: `Line ${positionOf(text, error.at).line}: ${error.message}.` };
  }
}

interface NodeProps extends Shared {
  node: Node;
  path: Path;
  /** The path as text: `lines[0].sku`. */
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
  /** Undefined in an array. */
  name: string | undefined;
  siblings: string[];
  last: boolean;
}

/** Members that the server sets or that have their own page. */
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
    if (!child) throw new JsonError('The value no longer exists', node.start);
    node = child;
  }
  return node;
}

/** A name is applied on blur, because an incomplete name may equal that of another member. */
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

/** Numbers keep their digits. Text that is not a number is not written to the document. */
function NumberField({ label, value, onValue }: { label: string; value: string; onValue: (value: string) => void }) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped((old) => (old.trim() === value ? old : value)), [value]);
  const isWrong = !isNumber(typed.trim());
  const take = (next: string) => {
    setTyped(next);
    if (isNumber(next.trim())) onValue(next.trim());
  };
  return <Field label={label} hideLabel mono inputmode="decimal" value={typed} onValue={take} onBlur={() => setTyped(value)} problem={isWrong ? `This is not a number. The document keeps ${value}.` : undefined} autocomplete="off" />;
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
