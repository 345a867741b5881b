/**
 * Edits of the text of a document by position, for the form. The text of other values is not modified, and a formatted text stays
 * formatted.
 */
import { compact, format, JsonError, parse, plain, raw, type Node } from './text.ts';

/** Index of a child at each level. Names would be ambiguous, because JSON permits duplicate names. */
export type Path = readonly number[];
export type ValueType = 'string' | 'number' | 'boolean' | 'null' | 'object' | 'array';

export const TYPES: readonly ValueType[] = ['string', 'number', 'boolean', 'null', 'object', 'array'];
const EMPTY: Record<ValueType, string> = { string: '""', number: '0', boolean: 'false', null: 'null', object: '{}', array: '[]' };

export function typeOf(text: string, node: Node): ValueType {
  if (node.kind !== 'literal') return node.kind;
  return raw(text, node) === 'null' ? 'null' : 'boolean';
}

export function isNumber(typed: string): boolean {
  return kindOf(typed) === 'number';
}

function kindOf(typed: string): Node['kind'] | undefined {
  try {
    return parse(typed).kind;
  } catch {
    return undefined;
  }
}

/** Converts a value to another type. Returns the empty value of the type if no conversion exists. */
export function converted(text: string, node: Node, to: ValueType): string {
  const from = typeOf(text, node);
  if (from === to) return raw(text, node);
  if (to === 'string') return JSON.stringify(from === 'object' || from === 'array' ? compact(text, node) : plain(text, node));
  if (to === 'array' && from !== 'string') return `[${raw(text, node)}]`;
  const inner = plain(text, node).trim();
  if (from === 'string' && (to === 'boolean' ? inner === 'true' : kindOf(inner) === to)) return inner;
  return to === 'array' ? `[${raw(text, node)}]` : EMPTY[to];
}

export function setValue(text: string, path: Path, value: string): string {
  const root = parse(text);
  const node = at(root, path);
  return keepFormat(text, root, text.slice(0, node.start) + value + text.slice(node.end));
}

export function remove(text: string, path: Path): string {
  return rebuild(text, path.slice(0, -1), (entries) => entries.toSpliced(path.at(-1) ?? 0, 1));
}

export function rename(text: string, path: Path, name: string): string {
  return rebuild(text, path.slice(0, -1), (entries) => entries.map((entry, index) => (index === path.at(-1) ? { ...entry, name: entry.name.replace(/^"(?:[^"\\]|\\.)*"/, () => JSON.stringify(name)) } : entry)));
}

export function add(text: string, container: Path, name: string, type: ValueType): string {
  return rebuild(text, container, (entries, isObject) => {
    const like = entries.at(-1);
    return [...entries, { lead: like?.lead ?? '', name: isObject ? `${JSON.stringify(name)}:${like && /\s$/.test(like.name) ? ' ' : ''}` : '', value: EMPTY[type] }];
  });
}

export function move(text: string, path: Path, by: number): string {
  return rebuild(text, path.slice(0, -1), (entries) => {
    const from = path.at(-1) ?? 0;
    const moved = entries[from];
    const to = from + by;
    return moved === undefined || to < 0 || to >= entries.length ? entries : entries.toSpliced(from, 1).toSpliced(to, 0, moved);
  });
}

interface Entry {
  /** White space before the entry. */
  lead: string;
  /** Name and colon as written; empty in an array. */
  name: string;
  value: string;
}

function at(root: Node, path: Path): Node {
  let node = root;
  for (const index of path) {
    const child = node.children?.[index];
    if (!child) throw new JsonError('The value no longer exists', node.start);
    node = child;
  }
  return node;
}

/** Replaces the entries of a container and keeps their white space. */
function rebuild(text: string, path: Path, change: (entries: Entry[], isObject: boolean) => Entry[]): string {
  const root = parse(text);
  const node = at(root, path);
  const children = node.children ?? [];
  let from = node.start + 1;
  const old = children.map((child): Entry => {
    const [before = '', lead = ''] = /^\s*,?(\s*)/.exec(text.slice(from, child.start)) ?? [];
    // The first child has no comma before it.
    const entry = { lead: before.includes(',') ? lead : before, name: text.slice(from + before.length, child.start), value: raw(text, child) };
    from = child.end;
    return entry;
  });
  const tail = text.slice(from, node.end - 1);
  const entries = change(old, node.kind === 'object');
  const inner = entries.map(({ lead, name, value }) => lead + name + value).join(',') + (entries.length > 0 ? tail : '');
  return keepFormat(text, root, text.slice(0, node.start + 1) + inner + text.slice(node.end - 1));
}

function keepFormat(old: string, root: Node, text: string): string {
  return format(old, root) === old.trimEnd() ? format(text) : text;
}
