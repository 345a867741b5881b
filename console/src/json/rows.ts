/** Readers of responses with rows: `_all_docs`, views, `_find`. Keys, values and documents remain text. */
import { member, parse, raw, stringOf, type Node } from './text.ts';

export interface Row {
  /** Undefined in rows of reductions. */
  id: string | undefined;
  key: string;
  value: string;
  doc: string | undefined;
  error: string | undefined;
}

export interface Rows {
  rows: Row[];
  total: number | undefined;
  offset: number | undefined;
}

export function readRows(text: string): Rows {
  const root = parse(text);
  const rows = member(root, 'rows')?.children ?? [];
  return { rows: rows.map((row) => readRow(text, row)), total: count(text, member(root, 'total_rows')), offset: count(text, member(root, 'offset')) };
}

function readRow(text: string, node: Node): Row {
  const rawOf = (name: string) => {
    const found = member(node, name);
    return found && raw(text, found);
  };
  const doc = rawOf('doc');
  const key = rawOf('key') ?? 'null';
  const value = rawOf('value') ?? 'null';
  return { id: stringOf(text, member(node, 'id')), key, value, doc: doc === 'null' ? undefined : doc, error: stringOf(text, member(node, 'error')) };
}

function count(text: string, node: Node | undefined): number | undefined {
  return node?.kind === 'number' ? Number(raw(text, node)) : undefined;
}

export function readDocs(text: string): { docs: string[]; bookmark: string | undefined; warning: string | undefined; stats: string | undefined } {
  const root = parse(text);
  const stats = member(root, 'execution_stats');
  return {
    docs: (member(root, 'docs')?.children ?? []).map((doc) => raw(text, doc)),
    bookmark: stringOf(text, member(root, 'bookmark')),
    warning: stringOf(text, member(root, 'warning')),
    stats: stats && raw(text, stats),
  };
}

/** Returns the members of a document by name, as JSON text. */
export function fields(doc: string): Map<string, string> {
  const node = parse(doc);
  const found = new Map<string, string>();
  node.keys?.forEach((key, index) => {
    const child = node.children?.[index];
    if (child) found.set(key, raw(doc, child));
  });
  return found;
}

const parsedMembers = new WeakMap<Row, Map<string, string>>();

/** Returns the members of the document of a row, which are parsed once. */
export function membersOf(row: Row): Map<string, string> {
  let found = parsedMembers.get(row);
  if (!found) {
    found = row.doc === undefined ? new Map<string, string>() : fields(row.doc);
    parsedMembers.set(row, found);
  }
  return found;
}

/** Compares JSON values in CouchDB's order of types: missing, null, booleans, numbers, strings, arrays, objects. */
export function compareValues(a: string | undefined, b: string | undefined): number {
  return compareParsed(a === undefined ? undefined : JSON.parse(a), b === undefined ? undefined : JSON.parse(b));
}

function compareParsed(a: unknown, b: unknown): number {
  const [left, right] = [rankOf(a), rankOf(b)];
  if (left !== right) return left - right;
  if (typeof a === 'string' && typeof b === 'string') return a.localeCompare(b);
  if (left < OBJECT_RANK) return Number(a) - Number(b);
  return compareLists(partsOf(a), partsOf(b));
}

function compareLists(a: unknown[], b: unknown[]): number {
  for (let index = 0; index < Math.min(a.length, b.length); index += 1) {
    const order = compareParsed(a[index], b[index]);
    if (order !== 0) return order;
  }
  return a.length - b.length;
}

/** Returns the elements of an array, or the names and values of an object. */
const partsOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : Object.entries(value ?? {}).flat());

const OBJECT_RANK = 5;

function rankOf(value: unknown): number {
  if (value === undefined) return 0;
  if (value === null) return 1;
  if (Array.isArray(value)) return OBJECT_RANK;
  return { boolean: 2, number: 3, string: 4 }[typeof value as string] ?? OBJECT_RANK + 1;
}

export interface Sort {
  name: string;
  descending: boolean;
}

/** Returns the rows in the order of a value. Rows without the value are last in both directions. */
export function sortedBy<T>(rows: readonly T[], valueOf: (row: T) => string | undefined, descending: boolean): T[] {
  const keyed = rows.map((row) => {
    const text = valueOf(row);
    return { row, value: text === undefined ? undefined : (JSON.parse(text) as unknown) };
  });
  const direction = descending ? -1 : 1;
  return keyed.toSorted((a, b) => {
    if (a.value === undefined || b.value === undefined) return Number(a.value === undefined) - Number(b.value === undefined);
    return direction * compareParsed(a.value, b.value);
  }).map(({ row }) => row);
}

/** Returns at most `max` names of members, the most common first. */
export function columns(docs: Iterable<Map<string, string>>, max: number): string[] {
  const counts = new Map<string, number>();
  for (const doc of docs) for (const key of doc.keys()) if (!key.startsWith('_')) counts.set(key, (counts.get(key) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).slice(0, max).map(([key]) => key);
}
