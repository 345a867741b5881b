/**
 * The member `_access` of a document in a database with per-document access: the names of the users and roles that may read and edit it.
 * Without the member, only administrators may.
 */
import { add, remove, setValue } from './form.ts';
import { JsonError, member, parse, plain, type Node } from './text.ts';

const MEMBER = '_access';
/** Entry of a list that names all users of the database. */
export const EVERY_USER = '_users';

/** Returns the list of a document, or undefined if the text is not an object or the list is not one of strings. */
export function readersOf(text: string): string[] | undefined {
  const root = parsed(text);
  if (root?.kind !== 'object') return undefined;
  const list = member(root, MEMBER);
  if (list === undefined) return [];
  if (list.kind !== 'array' || list.children?.some((child) => child.kind !== 'string')) return undefined;
  return list.children?.map((child) => plain(text, child)) ?? [];
}

/** Returns the text with another list. An empty list removes the member. The text of other members is not modified. */
export function withReaders(text: string, names: readonly string[]): string {
  const members = parse(text).keys ?? [];
  const at = members.lastIndexOf(MEMBER);
  if (names.length === 0) return at < 0 ? text : remove(text, [at]);
  const list = JSON.stringify(names);
  return at < 0 ? setValue(add(text, [], MEMBER, 'array'), [members.length], list) : setValue(text, [at], list);
}

function parsed(text: string): Node | undefined {
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return undefined;
  }
}
