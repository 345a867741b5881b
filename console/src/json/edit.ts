/** Changes of single members in a document's text; everything else stays as it was written. */
import { member, parse, raw, withMembers } from './text.ts';

/** Sets the text at a path of names, or removes it (`undefined`). Objects on the way are made. */
export function setAt(text: string, path: string[], value: string | undefined): string {
  const [name, ...rest] = path;
  if (name === undefined) return value ?? '{}';
  if (rest.length === 0) return withMembers(text, { [name]: value });
  const node = member(parse(text), name);
  const inner = node?.kind === 'object' ? raw(text, node) : '{}';
  return withMembers(text, { [name]: setAt(inner, rest, value) });
}

export function getAt(text: string, path: string[]): string | undefined {
  let node = parse(text);
  for (const name of path) {
    const next = member(node, name);
    if (!next) return undefined;
    node = next;
  }
  return raw(text, node);
}

/**
 * The JSON of a typed value. A member that was a string stays one; in place of another value JSON is read, and what is not JSON
 * is a string. An empty text removes a member that was no string.
 */
export function typedValue(old: string | undefined, typed: string): string | undefined {
  if (old?.startsWith('"')) return JSON.stringify(typed);
  if (typed === '') return undefined;
  try {
    parse(typed);
    return typed;
  } catch {
    return JSON.stringify(typed);
  }
}
