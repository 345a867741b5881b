/** Exports: a source yields JSON objects in batches, which become parts of a file. The list itself is never in memory. */
import { ENDINGS, TYPES, addColumns, csvHead, csvRow, line, type ExportFormat } from '../json/export.ts';
import { readDocs, readRows, type Row } from '../json/rows.ts';
import { member, parse, plain, raw, stringOf, withMembers } from '../json/text.ts';
import { readFigures, type Info } from './databases.ts';
import { send } from './http.ts';
import { query } from './paths.ts';

const BATCH = 1000;
/** Maximum number of hits in one answer of `_search`. */
const HITS = 200;

export type Source = (signal: AbortSignal) => AsyncIterable<string[]> | Iterable<string[]>;

type Params = Record<string, string | number | boolean | undefined>;

/** Pages through rows by key: each request starts after the last row of the previous one. */
export function rowSource(path: string, params: Params, object: (row: Row) => string | undefined): Source {
  return async function* rows(signal) {
    let from: Params = {};
    for (;;) {
      const { text } = await send('GET', path + query({ ...params, ...from, limit: BATCH }), { signal });
      const found = readRows(text).rows;
      yield found.flatMap((row) => object(row) ?? []);
      const last = found.at(-1);
      if (!last || found.length < BATCH) return;
      const ties = found.filter(({ key, id }) => key === last.key && id === last.id).length;
      from = { startkey: last.key, startkey_docid: last.id, skip: ties };
    }
  };
}

/** Reads all rows in one request, for groups and for documents by keys, which cannot be paged by key. */
export function answerSource(path: string, object: (row: Row) => string | undefined): Source {
  return async function* answer(signal) {
    yield readRows((await send('GET', path, { signal })).text).rows.flatMap((row) => object(row) ?? []);
  };
}

export const rowObject = ({ id, key, value, doc }: Row) => `{${id === undefined ? '' : `"id":${JSON.stringify(id)},`}"key":${key},"value":${value}${doc === undefined ? '' : `,"doc":${doc}`}}`;

/** Pages through all documents that a selector matches by bookmark. The limit of the query is ignored. */
export function findSource(path: string, body: string): Source {
  return async function* found(signal) {
    let bookmark: string | undefined;
    for (;;) {
      const request = withMembers(body, { limit: String(HITS), execution_stats: undefined, bookmark: bookmark === undefined ? undefined : JSON.stringify(bookmark) });
      const page = readDocs((await send('POST', path, { body: request, signal })).text);
      yield page.docs;
      if (page.docs.length < HITS || page.bookmark === undefined || page.bookmark === bookmark) return;
      ({ bookmark } = page);
    }
  };
}

/** Pages through all hits of a search, with their documents. */
export function searchSource(path: string): Source {
  return async function* hits(signal) {
    let bookmark: string | undefined;
    for (;;) {
      const { text } = await send('GET', `${path}${query({ limit: HITS, include_docs: true, bookmark }).replace('?', '&')}`, { signal });
      const root = parse(text);
      const found = (member(root, 'hits') ?? member(root, 'rows'))?.children ?? [];
      yield found.map((hit) => raw(text, member(hit, 'doc') ?? hit));
      const next = stringOf(text, member(root, 'bookmark'));
      if (found.length < HITS || next === bookmark) return;
      bookmark = next;
    }
  };
}

/** Pages through all changes of a feed. */
export function changesSource(path: string, params: Params): Source {
  return async function* changes(signal) {
    let since = '0';
    for (;;) {
      const { text } = await send('GET', path + query({ ...params, since, limit: BATCH }), { signal });
      const root = parse(text);
      const found = member(root, 'results')?.children ?? [];
      yield found.map((change) => raw(text, change));
      const last = member(root, 'last_seq');
      if (found.length < BATCH || !last) return;
      since = plain(text, last);
    }
  };
}

/** Yields objects that the page has loaded. */
export const objectSource = (objects: readonly object[]): Source => () => [objects.map((object) => JSON.stringify(object))];

/** Yields the names and figures of databases. */
export function databaseSource(names: string[]): Source {
  return async function* databases(signal) {
    for (let from = 0; from < names.length; from += BATCH) {
      const some = names.slice(from, from + BATCH);
      const found = new Map<string, Info | undefined>();
      await readFigures(some, signal, (batch) => { for (const [name, info] of batch) found.set(name, info); });
      yield some.map((name) => {
        const info = found.get(name);
        return JSON.stringify({ name, ...(info && { documents: info.doc_count, deleted: info.doc_del_count, data_bytes: info.sizes.external, disk_bytes: info.sizes.file, partitioned: info.props?.partitioned ?? false }) });
      });
    }
  };
}

export interface Exported {
  file: Blob;
  count: number;
}

/** Reads the source to its end. `onCount` is called after each batch. */
export async function exportAs(format: ExportFormat, source: Source, signal: AbortSignal, onCount: (count: number) => void): Promise<Exported> {
  const parts: Blob[] = [];
  const columns = new Set<string>();
  let count = 0;
  for await (const batch of source(signal)) {
    signal.throwIfAborted();
    if (batch.length === 0) continue;
    if (format === 'CSV') for (const object of batch) addColumns(columns, object);
    const text = batch.map(line).join(format === 'JSON' ? ',\n' : '\n');
    parts.push(new Blob([format === 'JSON' && count > 0 ? `,\n${text}` : format === 'JSON' ? text : `${text}\n`]));
    count += batch.length;
    onCount(count);
  }
  const file = format === 'CSV' ? await csvFile(parts, [...columns]) : format === 'JSON' ? ['[\n', ...parts, '\n]\n'] : parts;
  return { file: new Blob(file, { type: TYPES[format] }), count };
}

/** Converts the lines in a second pass, because the columns are complete only after all objects were read. */
async function csvFile(parts: Blob[], columns: string[]): Promise<BlobPart[]> {
  const file: BlobPart[] = [`${csvHead(columns)}\n`];
  for (const part of parts) {
    const lines = (await part.text()).trimEnd().split('\n');
    file.push(new Blob([`${lines.map((object) => csvRow(object, columns)).join('\n')}\n`]));
  }
  return file;
}

export const download = (file: Blob, name: string, format: ExportFormat) => downloadFile(file, `${name.replaceAll(/[^\w.-]+/g, '-')}.${ENDINGS[format]}`);

export function downloadFile(file: Blob, name: string): void {
  const url = URL.createObjectURL(file);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
