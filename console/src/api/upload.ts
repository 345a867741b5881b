/** Uploads the documents of a file. Guarantee: every document is stored or reported with its line and the reason. */
import { parse, member, stringOf, withMembers } from '../json/text.ts';
import type { Refusal, Source } from '../json/import.ts';
import { ApiError, get, send } from './http.ts';
import { path, query } from './paths.ts';

const BATCH_DOCS = 500;
const BATCH_BYTES = 2_000_000;

export interface Progress {
  /** Number of documents that are stored or refused. A retry of the upload continues after them. */
  done: number;
  saved: number;
  refused: Refusal[];
}

export const NO_PROGRESS: Progress = { done: 0, saved: 0, refused: [] };

export type Post = (docs: string[]) => Promise<{ id?: string; error?: string; reason?: string }[]>;

const idOf = (text: string) => stringOf(text, member(parse(text), '_id'));

export function postTo(db: string, signal: AbortSignal): Post {
  return async (docs) => JSON.parse((await send('POST', path`${db}/_bulk_docs`, { body: `{"docs":[${docs.join(',')}]}`, signal })).text) as Awaited<ReturnType<Post>>;
}

/** Assigns ids to documents without one, so that a retry is idempotent. */
export async function assignIds(docs: Source[], signal: AbortSignal): Promise<void> {
  const nameless = docs.filter(({ text }) => member(parse(text), '_id') === undefined);
  if (nameless.length === 0) return;
  const { uuids } = await get<{ uuids: string[] }>(`_uuids${query({ count: nameless.length })}`, signal);
  nameless.forEach((doc, index) => { if (uuids[index] !== undefined) doc.text = withMembers(doc.text, { _id: JSON.stringify(uuids[index]) }); });
}

/** Returns true if the server refused the content of the request, so that smaller requests may succeed. */
const isRefusal = (error: unknown): error is ApiError => error instanceof ApiError && [400, 403, 409, 412, 413, 415, 417, 422].includes(error.status);

/** Returns the reason of a refusal. For a document that is too large, the server's reason is only the id, so the error is returned. */
const reasonOf = (doc: Source, error: string, reason: string | undefined) => (reason === undefined || reason === idOf(doc.text) ? error : reason);

/** Stores a batch. If the server refuses the request, the batch is halved recursively until the refused documents are found. */
export async function storeBatch(docs: Source[], post: Post, progress: Progress): Promise<void> {
  if (docs.length === 0) return;
  const refuse = (doc: Source, id: string | undefined, reason: string) => progress.refused.push({ line: doc.line, id: id ?? idOf(doc.text), reason });
  try {
    const outcomes = await post(docs.map(({ text }) => text));
    docs.forEach((doc, index) => {
      const outcome = outcomes[index];
      if (outcome?.error !== undefined) refuse(doc, outcome.id, reasonOf(doc, outcome.error, outcome.reason));
      else if (outcome) progress.saved += 1;
      else refuse(doc, undefined, 'The server returned no result for this document.');
    });
    progress.done += docs.length;
  } catch (error) {
    if (!isRefusal(error)) throw error;
    const [only] = docs;
    if (docs.length === 1 && only) {
      refuse(only, undefined, reasonOf(only, error.error, error.message));
      progress.done += 1;
      return;
    }
    const middle = Math.ceil(docs.length / 2);
    await storeBatch(docs.slice(0, middle), post, progress);
    await storeBatch(docs.slice(middle), post, progress);
  }
}

export function* batches<T extends { text: string }>(docs: T[]): Generator<T[]> {
  let batch: T[] = [];
  let size = 0;
  for (const doc of docs) {
    if (batch.length > 0 && (batch.length >= BATCH_DOCS || size + doc.text.length > BATCH_BYTES)) {
      yield batch;
      batch = [];
      size = 0;
    }
    batch.push(doc);
    size += doc.text.length;
  }
  if (batch.length > 0) yield batch;
}
