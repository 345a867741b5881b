/** Undo of deletions. The revision before a tombstone is stored until a compaction; the undo writes its content as a new revision. */
import { member, parse, plain, raw, stringOf, withMembers, type Node } from '../json/text.ts';
import { send } from './http.ts';
import { docPath, path } from './paths.ts';

export interface Deletion {
  id: string;
  /** The revision before the deletion. */
  old: string;
}

/** Returns the last deletion of a document. Throws if the revision before it is unknown. */
export async function deletionOf(db: string, id: string): Promise<Deletion> {
  const { text } = await send('GET', `${docPath(db, id)}?open_revs=all&revs=true`);
  const leaves = (parse(text).children ?? []).flatMap((leaf) => member(leaf, 'ok') ?? []);
  const generation = (leaf: Node) => Number(raw(text, member(member(leaf, '_revisions'), 'start') ?? { kind: 'number', start: 0, end: 0 }));
  const leaf = leaves.toSorted((a, b) => generation(b) - generation(a))[0];
  const before = member(member(leaf, '_revisions'), 'ids')?.children?.[1];
  if (!leaf || !before) throw new Error(`The server has no revision of ${id} before its deletion.`);
  return { id, old: `${generation(leaf) - 1}-${plain(text, before)}` };
}

/** Writes the old contents again, with their attachments. Returns the ids of documents whose old revision was removed or that another client has changed. */
export async function restore(db: string, deletions: Deletion[]): Promise<string[]> {
  const request = JSON.stringify({ docs: deletions.map(({ id, old }) => ({ id, rev: old })) });
  const { text } = await send('POST', path`${db}/_bulk_get?attachments=true`, { body: request });
  const found = new Map<string, string>();
  for (const result of member(parse(text), 'results')?.children ?? []) {
    const ok = member(member(result, 'docs')?.children?.[0], 'ok');
    const id = stringOf(text, member(result, 'id'));
    if (ok && id !== undefined) found.set(id, raw(text, ok));
  }
  // A write without a revision succeeds on a deleted document and conflicts with any other leaf.
  const docs = [...found.values()].map((old) => withMembers(old, { _rev: undefined, _revisions: undefined }));
  if (docs.length === 0) return deletions.map(({ id }) => id);
  const answer = JSON.parse((await send('POST', path`${db}/_bulk_docs`, { body: `{"docs":[${docs.join(',')}]}` })).text) as { id: string; error?: string }[];
  const failed = new Set(answer.filter(({ error }) => error !== undefined).map(({ id }) => id));
  return deletions.map(({ id }) => id).filter((id) => failed.has(id) || !found.has(id));
}
