/** Takes deletions back. A deletion is a revision: the one before it is stored until a compaction, and becomes the newest again. */
import { member, parse, plain, raw, stringOf, withMembers, type Node } from '../json/text.ts';
import { send } from './http.ts';
import { docPath, path } from './paths.ts';

/** A document that was deleted, and its revision before. */
export interface Deletion {
  id: string;
  old: string;
}

/** The deletion of a document that has no other leaf. */
export async function deletionOf(db: string, id: string): Promise<Deletion> {
  const { text } = await send('GET', `${docPath(db, id)}?open_revs=all&revs=true`);
  const leaves = (parse(text).children ?? []).flatMap((leaf) => member(leaf, 'ok') ?? []);
  const generation = (leaf: Node) => Number(raw(text, member(member(leaf, '_revisions'), 'start') ?? { kind: 'number', start: 0, end: 0 }));
  const leaf = leaves.toSorted((a, b) => generation(b) - generation(a))[0];
  const before = member(member(leaf, '_revisions'), 'ids')?.children?.[1];
  if (!leaf || !before) throw new Error(`The server has no revision of ${id} before its deletion.`);
  return { id, old: `${generation(leaf) - 1}-${plain(text, before)}` };
}

/** Stores the old revisions again, with their attachments. Returns the ids of those that are gone, or that another client has changed. */
export async function restore(db: string, deletions: Deletion[]): Promise<string[]> {
  const asked = JSON.stringify({ docs: deletions.map(({ id, old }) => ({ id, rev: old })) });
  const { text } = await send('POST', path`${db}/_bulk_get?attachments=true`, { body: asked });
  const found = new Map<string, string>();
  for (const result of member(parse(text), 'results')?.children ?? []) {
    const ok = member(member(result, 'docs')?.children?.[0], 'ok');
    const id = stringOf(text, member(result, 'id'));
    if (ok && id !== undefined) found.set(id, raw(text, ok));
  }
  // A document without a revision continues a deletion, and conflicts with everything else.
  const docs = [...found.values()].map((old) => withMembers(old, { _rev: undefined, _revisions: undefined }));
  if (docs.length === 0) return deletions.map(({ id }) => id);
  const answer = JSON.parse((await send('POST', path`${db}/_bulk_docs`, { body: `{"docs":[${docs.join(',')}]}` })).text) as { id: string; error?: string }[];
  const failed = new Set(answer.filter(({ error }) => error !== undefined).map(({ id }) => id));
  return deletions.map(({ id }) => id).filter((id) => failed.has(id) || !found.has(id));
}
