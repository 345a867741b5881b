/** Changes of single members in the text of a document. The rest of the text is not modified. */
import { member, parse, raw, withMembers } from './text.ts';

/** Sets the value at a path of names, or removes it (`undefined`). Missing objects in the path are created. */
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
 * Converts typed text to JSON. A string remains a string. For other values the text is read as JSON, and text that is not JSON becomes
 * a string. Returns undefined, which removes the member, for an empty text in place of a value that is not a string.
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
