/** Readers of files with documents: JSON (an array, `{"docs": […]}`, rows of `_all_docs`, or one document), NDJSON and CSV. */
import { JsonError, compact, member, parse, positionOf, raw, stringOf } from './text.ts';

export type Format = 'JSON' | 'NDJSON' | 'CSV';

export interface Source {
  /** Number of its first line, from 1. */
  line: number;
  text: string;
}

/** A part of the file that is not stored. */
export interface Refusal {
  line: number;
  id: string | undefined;
  reason: string;
}

export interface Import {
  format: Format;
  docs: Source[];
  /** Parts that are not documents. */
  problems: Refusal[];
}

export function readFile(name: string, text: string): Import {
  const format = guess(name, text);
  if (format === 'CSV') return readCsv(text);
  return format === 'NDJSON' ? readLines(text) : readJson(text);
}

export function guess(name: string, text: string): Format {
  if (/\.(?:csv|tsv)$/i.test(name)) return 'CSV';
  if (/\.(?:ndjson|jsonl)$/i.test(name)) return 'NDJSON';
  if (/\.json$/i.test(name)) return isLines(text) ? 'NDJSON' : 'JSON';
  const start = text.trimStart()[0];
  if (start === '[') return 'JSON';
  if (start === '{') return isLines(text) ? 'NDJSON' : 'JSON';
  return 'CSV';
}

/** Number of lines that are read to distinguish NDJSON from JSON, because the first line may be invalid. */
const LINES_READ = 20;

/** Returns true if several lines have content and one of the first lines is a complete object. */
function isLines(text: string): boolean {
  const trimmed = text.trim();
  if (!trimmed.startsWith('{')) return false;
  const lines = trimmed.split('\n', LINES_READ).filter((line) => line.trim() !== '');
  return lines.length > 1 && lines.some((line) => line.startsWith('{') && isObject(line));
}

function isObject(line: string): boolean {
  try {
    return parse(line).kind === 'object';
  } catch {
    return false;
  }
}

function readJson(text: string): Import {
  const problems: Refusal[] = [];
  const docs: Source[] = [];
  try {
    const root = parse(text);
    const isList = root.kind === 'array';
    const list = isList ? root : (member(root, 'docs') ?? member(root, 'rows'));
    const fromRows = !isList && member(root, 'docs') === undefined && list !== undefined;
    const lines = lineCounter(text);
    for (const node of list?.children ?? [root]) {
      const doc = fromRows ? member(node, 'doc') : node;
      const line = lines(node.start);
      if (doc?.kind === 'object') docs.push({ line, text: raw(text, doc) });
      else problems.push({ line, id: stringOf(text, member(node, 'id')), reason: doc === undefined ? 'The row has no document.' : 'A document must be an object.' });
    }
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    const { line, column } = positionOf(text, error.at);
    problems.push({ line, id: undefined, reason: `${error.message}, at column ${column}. The file is one JSON value, so none of its documents can be read.` });
  }
  return { format: 'JSON', docs, problems };
}

/** Returns a function that converts an offset to a line number. Offsets must not decrease between calls. */
function lineCounter(text: string): (at: number) => number {
  let line = 1;
  let seen = 0;
  return (at) => {
    for (let next = text.indexOf('\n', seen); next >= 0 && next < at; next = text.indexOf('\n', seen)) {
      line += 1;
      seen = next + 1;
    }
    return line;
  };
}

function readLines(text: string): Import {
  const found: Import = { format: 'NDJSON', docs: [], problems: [] };
  text.replace(/^\uFEFF/, '').split(/\r?\n/).forEach((line, index) => {
    if (line.trim() === '') return;
    const refuse = (reason: string) => found.problems.push({ line: index + 1, id: guessId(line), reason });
    try {
      if (parse(line).kind === 'object') found.docs.push({ line: index + 1, text: line });
      else refuse('A document must be an object.');
    } catch (error) {
      if (!(error instanceof JsonError)) throw error;
      refuse(`${error.message}, at column ${error.at + 1}.`);
    }
  });
  return found;
}

/** Returns the id in a line that is not valid JSON, or undefined if none is found. */
function guessId(line: string): string | undefined {
  const found = /"_id"\s*:\s*("(?:[^"\\]|\\.)*")/.exec(line)?.[1];
  try {
    return found === undefined ? undefined : (JSON.parse(found) as string);
  } catch {
    return undefined;
  }
}

/** Reads CSV. The first row contains the names of the members. Numbers, `true`, `false` and `null` become JSON values and keep their text. */
function readCsv(text: string): Import {
  const body = text.replace(/^\uFEFF/, '');
  const { records, lines, unclosed } = csvRecords(body, separator(body));
  const [head = [], ...rest] = records;
  const problems: Refusal[] = unclosed.map((line) => ({ line, id: undefined, reason: 'A quote opens on this line and is not closed.' }));
  const docs: Source[] = [];
  const idAt = head.indexOf('_id');
  rest.forEach((record, index) => {
    const line = lines[index + 1] ?? 0;
    if (record.length > head.length) {
      problems.push({ line, id: record[idAt], reason: `The row has ${record.length} fields, and the first row names ${head.length}.` });
      return;
    }
    const members = head.map((name, at) => ({ name, value: record[at] })).filter(({ value }) => value !== undefined && value !== '');
    docs.push({ line, text: `{${members.map(({ name, value }) => `${JSON.stringify(name)}:${csvValue(name, value ?? '')}`).join(',')}}` });
  });
  return { format: 'CSV', docs, problems };
}

function separator(text: string): string {
  const first = text.split('\n', 1)[0] ?? '';
  const count = (char: string) => first.split(char).length;
  return [',', ';', '\t'].reduce((best, char) => (count(char) > count(best) ? char : best));
}

function csvValue(name: string, text: string): string {
  const isText = name === '_id' || name === '_rev';
  if (!isText && /^(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)$/.test(text)) return text;
  if (!isText && /^[[{]/.test(text)) {
    try {
      return compact(text);
    } catch {
      // Text that is not valid JSON becomes a string.
    }
  }
  return JSON.stringify(text);
}

/** Returns the records, their first lines, and the lines with an unclosed quote. Reading resumes after a line with an unclosed quote. */
export function csvRecords(text: string, comma: string): { records: string[][]; lines: number[]; unclosed: number[] } {
  const unclosed: number[] = [];
  const records: string[][] = [];
  const lines: number[] = [];
  const lineAt = lineCounter(text);
  let start = 0;
  let record: string[] = [];
  let at = 0;
  read: while (at < text.length) {
    let value = '';
    if (text[at] === '"') {
      at += 1;
      for (;;) {
        const quote = text.indexOf('"', at);
        if (quote < 0) {
          unclosed.push(lineAt(start));
          const end = text.indexOf('\n', start);
          at = start = end < 0 ? text.length : end + 1;
          record = [];
          continue read;
        }
        value += text.slice(at, quote);
        at = quote + 1;
        if (text[at] !== '"') break;
        value += '"';
        at += 1;
      }
    }
    const from = at;
    while (at < text.length && text[at] !== comma && text[at] !== '\n') at += 1;
    value += text.slice(from, at).replace(/\r$/, '');
    record.push(value);
    if (at >= text.length || text[at] === '\n') {
      if (record.length > 1 || record[0] !== '') {
        records.push(record);
        lines.push(lineAt(start));
      }
      record = [];
      start = at + 1;
    } else if (at === text.length - 1) record.push('');
    at += 1;
  }
  if (record.length > 0) {
    records.push(record);
    lines.push(lineAt(start));
  }
  return { records, lines, unclosed };
}
