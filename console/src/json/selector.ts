/** Reads and writes the conditions, the order and the limit in the text of a Mango query. Numbers keep their text. */
import { getAt, setAt } from './edit.ts';
import { compact, format, parse, plain, raw, withMembers, type Node } from './text.ts';

export interface Condition {
  /** Name of the field, or a combination such as `$or`. */
  field: string;
  /** Empty for a combination. */
  operator: string;
  /** JSON. */
  value: string;
}

export interface Order {
  /** Empty if the query has no order. */
  field: string;
  descending: boolean;
}

/** Condition of a new query, which matches every document. */
const MATCH_ALL = '{"$gt":null}';
/** Limit of the server for a query without one. */
const DEFAULT_LIMIT = '25';

function isOperators(node: Node): boolean {
  return node.kind === 'object' && (node.keys ?? []).length > 0 && (node.keys ?? []).every((key) => key.startsWith('$'));
}

/** Returns the conditions of a query, which must all be met, or undefined if the text is not a query. */
export function conditionsOf(query: string): Condition[] | undefined {
  try {
    const selector = getAt(query, ['selector']);
    if (selector === undefined) return [];
    const root = parse(selector);
    return (root.keys ?? []).flatMap((field, index) => {
      const node = root.children?.[index];
      return node === undefined ? [] : read(selector, field, node);
    });
  } catch {
    return undefined;
  }
}

function read(selector: string, field: string, node: Node): Condition[] {
  const value = compact(raw(selector, node));
  if (field.startsWith('$')) return [{ field, operator: '', value }];
  if (field === '_id' && value === MATCH_ALL) return [];
  if (!isOperators(node)) return [{ field, operator: '$eq', value }];
  return (node.keys ?? []).flatMap((operator, index) => {
    const operand = node.children?.[index];
    return operand === undefined ? [] : [{ field, operator, value: compact(raw(selector, operand)) }];
  });
}

/** Converts typed text to JSON. Text that is not JSON becomes a string. A list is JSON or separated by commas. */
export function conditionValue(operator: string, typed: string): string {
  if (operator === '$exists') return typed === 'false' ? 'false' : 'true';
  const isList = operator === '$in' || operator === '$nin';
  try {
    const isArray = parse(typed).kind === 'array';
    return isList && !isArray ? `[${typed}]` : typed;
  } catch {
    return isList ? `[${typed.split(',').map((part) => conditionValue('$eq', part.trim())).join(',')}]` : JSON.stringify(typed);
  }
}

export function withCondition(query: string, field: string, operator: string, value: string): string {
  const idCondition = getAt(query, ['selector', '_id']);
  const start = field !== '_id' && idCondition !== undefined && compact(idCondition) === MATCH_ALL ? setAt(query, ['selector', '_id'], undefined) : query;
  const old = getAt(start, ['selector', field]);
  const base = old === undefined ? '{}' : isOperators(parse(old)) ? old : `{"$eq":${old}}`;
  return format(setAt(start, ['selector', field], withMembers(base, { [operator]: value })));
}

export function withoutCondition(query: string, { field, operator }: Condition): string {
  const old = getAt(query, ['selector', field]);
  const isLast = operator === '' || old === undefined || !isOperators(parse(old)) || parse(old).keys?.length === 1;
  return format(setAt(query, isLast ? ['selector', field] : ['selector', field, operator], undefined));
}

/** Returns the order of a query, or undefined if it has more than one field. */
export function orderOf(query: string): Order | undefined {
  const text = getAt(query, ['sort']);
  if (text === undefined) return { field: '', descending: false };
  const [entry, ...others] = parse(text).children ?? [];
  if (entry === undefined) return { field: '', descending: false };
  if (others.length > 0) return undefined;
  if (entry.kind === 'string') return { field: plain(text, entry), descending: false };
  const [field] = entry.keys ?? [];
  const direction = entry.children?.[0];
  return field === undefined || direction === undefined ? undefined : { field, descending: plain(text, direction) === 'desc' };
}

export function withOrder(query: string, { field, descending }: Order): string {
  return format(setAt(query, ['sort'], field === '' ? undefined : JSON.stringify([{ [field]: descending ? 'desc' : 'asc' }])));
}

export function limitOf(query: string): string {
  return getAt(query, ['limit']) ?? DEFAULT_LIMIT;
}

export function withLimit(query: string, limit: string): string {
  return format(setAt(query, ['limit'], limit));
}
