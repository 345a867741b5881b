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

/** Compares JSON values in CouchDB's order of types: missing, null, booleans, numbers, strings, other values. */
export function compareValues(a: string | undefined, b: string | undefined): number {
  const [left, right] = [rankOf(a), rankOf(b)];
  if (left !== right) return left - right;
  if (a === undefined || b === undefined) return 0;
  if (left === NUMBER_RANK) return Number(a) - Number(b);
  if (left === STRING_RANK) return (JSON.parse(a) as string).localeCompare(JSON.parse(b) as string);
  return a < b ? -1 : a > b ? 1 : 0;
}

const NUMBER_RANK = 3;
const STRING_RANK = 4;

function rankOf(value: string | undefined): number {
  if (value === undefined) return 0;
  const first = value[0] ?? '';
  if (first === 'n') return 1;
  if (first === 't' || first === 'f') return 2;
  if (first === '"') return STRING_RANK;
  return first === '[' || first === '{' ? 5 : NUMBER_RANK;
}

/** Returns at most `max` names of members, the most common first. */
export function columns(docs: Iterable<Map<string, string>>, max: number): string[] {
  const counts = new Map<string, number>();
  for (const doc of docs) for (const key of doc.keys()) if (!key.startsWith('_')) counts.set(key, (counts.get(key) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).slice(0, max).map(([key]) => key);
}
