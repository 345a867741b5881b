/** Sends the documents of a file. Every document is stored, or named with its line and the reason. */
import { parse, member, stringOf, withMembers } from '../json/text.ts';
import type { Refusal, Source } from '../json/import.ts';
import { ApiError, get, send } from './http.ts';
import { path, query } from './paths.ts';

const BATCH_DOCS = 500;
const BATCH_BYTES = 2_000_000;

export interface Progress {
  /** Documents that are stored or refused: the upload continues behind them. */
  done: number;
  saved: number;
  refused: Refusal[];
}

export const NOTHING_SENT: Progress = { done: 0, saved: 0, refused: [] };

export type Post = (docs: string[]) => Promise<{ id?: string; error?: string; reason?: string }[]>;

const idOf = (text: string) => stringOf(text, member(parse(text), '_id'));

/** Posts documents to a database. Those without an id get one first, so that a repeated request stores none of them twice. */
export function postTo(db: string, signal: AbortSignal): Post {
  return async (docs) => JSON.parse((await send('POST', path`${db}/_bulk_docs`, { body: `{"docs":[${docs.join(',')}]}`, signal })).text) as Awaited<ReturnType<Post>>;
}

export async function withIds(docs: Source[], signal: AbortSignal): Promise<void> {
  const nameless = docs.filter(({ text }) => member(parse(text), '_id') === undefined);
  if (nameless.length === 0) return;
  const { uuids } = await get<{ uuids: string[] }>(`_uuids${query({ count: nameless.length })}`, signal);
  nameless.forEach((doc, index) => { if (uuids[index] !== undefined) doc.text = withMembers(doc.text, { _id: JSON.stringify(uuids[index]) }); });
}

/** True if the answer is about what the request holds: a part of it may be accepted. */
const isRefusal = (error: unknown): error is ApiError => error instanceof ApiError && [400, 403, 409, 412, 413, 415, 417, 422].includes(error.status);

/** The reason of a refusal; of a document that is too large the server's reason is only its id. */
const why = (doc: Source, error: string, reason: string | undefined) => (reason === undefined || reason === idOf(doc.text) ? error : reason);

/** Stores a batch; of one that is refused as a whole, each half, down to the single documents that are at fault. */
export async function storeBatch(docs: Source[], post: Post, progress: Progress): Promise<void> {
  if (docs.length === 0) return;
  const refuse = (doc: Source, id: string | undefined, reason: string) => progress.refused.push({ line: doc.line, id: id ?? idOf(doc.text), reason });
  try {
    const outcomes = await post(docs.map(({ text }) => text));
    docs.forEach((doc, index) => {
      const outcome = outcomes[index];
      if (outcome?.error !== undefined) refuse(doc, outcome.id, why(doc, outcome.error, outcome.reason));
      else if (outcome) progress.saved += 1;
      else refuse(doc, undefined, 'The server gives no outcome for this document.');
    });
    progress.done += docs.length;
  } catch (error) {
    if (!isRefusal(error)) throw error;
    const [only] = docs;
    if (docs.length === 1 && only) {
      refuse(only, undefined, why(only, error.error, error.message));
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
