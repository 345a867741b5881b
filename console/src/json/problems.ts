/** Problems that the JSON editor marks. */
import { JsonError, parse } from './text.ts';

export interface Mark {
  from: number;
  to: number;
  message: string;
}

export function jsonProblems(text: string): Mark[] {
  try {
    parse(text);
    return [];
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    return [{ from: error.at, to: Math.min(text.length, error.at + 1), message: error.message }];
  }
}

export function documentProblems(text: string): Mark[] {
  const found = jsonProblems(text);
  if (found.length > 0) return found;
  const root = parse(text);
  if (root.kind !== 'object') return [{ from: root.start, to: root.end, message: 'A document must be an object: it starts with {' }];
  const seen = new Set<string>();
  const allowed = /^_(?:id|rev|access|deleted|attachments|revisions|replication_\w+)$/;
  return (root.keys ?? []).flatMap((key, index) => {
    const child = root.children?.[index];
    const isTwice = seen.has(key);
    seen.add(key);
    if (!child) return [];
    if (isTwice) return [{ from: child.start, to: child.end, message: `“${key}” occurs twice; the last one is used` }];
    if (key.startsWith('_') && !allowed.test(key)) return [{ from: child.start, to: child.end, message: `Names that start with _ are reserved: the server refuses ${key}` }];
    return [];
  });
}
