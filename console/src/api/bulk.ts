import { readDocs, readRows } from '../json/rows.ts';
import { member, parse, stringOf, withMembers } from '../json/text.ts';
import { send } from './http.ts';
import { path } from './paths.ts';

/** Limits of one bulk edit, because the edit and its undo keep all documents in memory. */
export const EDIT_DOCS_MAX = 10_000;
export const EDIT_CHARS_MAX = 50_000_000;
const PORTION = 500;
const PORTION_CHARS = 4_000_000;

export interface Outcome {
  id: string;
  rev?: string;
  error?: string;
  reason?: string;
}

/** Returns the ids of all documents that a Mango query matches; `find` is the path of `_find`. The limit, fields and sort of the query are ignored. */
export async function idsOfQuery(find: string, text: string): Promise<string[]> {
  const ids: string[] = [];
  let bookmark: string | undefined;
  do {
    const body = withMembers(text, { fields: '["_id"]', sort: undefined, skip: undefined, execution_stats: undefined, limit: String(PORTION), bookmark: bookmark === undefined ? undefined : JSON.stringify(bookmark) });
    const page = readDocs((await send('POST', find, { body })).text);
    ids.push(...page.docs.flatMap((doc) => stringOf(doc, member(parse(doc), '_id')) ?? []));
    if (ids.length > EDIT_DOCS_MAX) throw new Error(`The query finds more than ${EDIT_DOCS_MAX.toLocaleString('en')} documents. Edit fewer at a time.`);
    bookmark = page.docs.length < PORTION ? undefined : page.bookmark;
  } while (bookmark !== undefined && bookmark !== 'nil');
  return [...new Set(ids)].filter((id) => !id.startsWith('_design/'));
}

export interface Text {
  id: string;
  text: string;
}

/** Returns the winning revisions. Deleted and missing documents are omitted. */
export async function loadTexts(db: string, ids: string[]): Promise<Text[]> {
  const found: Text[] = [];
  let chars = 0;
  for (let from = 0; from < ids.length; from += PORTION) {
    const body = JSON.stringify({ keys: ids.slice(from, from + PORTION) });
    for (const { id, doc } of readRows((await send('POST', path`${db}/_all_docs?include_docs=true`, { body })).text).rows) {
      if (id === undefined || doc === undefined) continue;
      chars += doc.length;
      found.push({ id, text: doc });
    }
    if (chars > EDIT_CHARS_MAX) throw new Error(`These documents have more than ${EDIT_CHARS_MAX / 1_000_000} MB. Edit fewer at a time.`);
  }
  return found;
}

/** Saves documents in batches. If the request of a batch fails, each of its documents has the error as its outcome. */
export async function saveTexts(db: string, docs: Text[], onDone: (count: number) => void = () => {}): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (let from = 0; from < docs.length;) {
    let to = from + 1;
    for (let chars = docs[from]?.text.length ?? 0; to < docs.length && to - from < PORTION && chars < PORTION_CHARS; to += 1) chars += docs[to]?.text.length ?? 0;
    const portion = docs.slice(from, to);
    try {
      const answer = JSON.parse((await send('POST', path`${db}/_bulk_docs`, { body: `{"docs":[${portion.map(({ text }) => text).join(',')}]}` })).text) as Outcome[];
      outcomes.push(...portion.map(({ id }, index) => ({ ...answer[index], id })));
    } catch (error) {
      outcomes.push(...portion.map(({ id }) => ({ id, error: 'failed', reason: (error as Error).message })));
    }
    from = to;
    onDone(outcomes.length);
  }
  return outcomes;
}

/** Returns the texts before an edit with the revisions that the edit created, so that saving them undoes the edit. */
export const texts = (before: Map<string, string>, outcomes: Outcome[]): Text[] =>
  outcomes.flatMap(({ id, rev, error }) => {
    const text = before.get(id);
    return error !== undefined || rev === undefined || text === undefined ? [] : [{ id, text: withMembers(text, { _rev: JSON.stringify(rev) }) }];
  });
