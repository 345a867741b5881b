/** Files that become documents: JSON (an array, `{"docs": […]}`, rows of `_all_docs`, or one document), NDJSON and CSV. */
import { JsonError, compact, member, parse, place, raw } from './text.ts';

export type Format = 'JSON' | 'NDJSON' | 'CSV';

export interface Import {
  format: Format;
  /** Documents as JSON texts. */
  docs: string[];
  /** What could not be read, and where. */
  problems: string[];
}

/** Problems that are told; more of them say nothing new. */
const PROBLEMS_MAX = 20;

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

/** Whether the first line is a whole object and something follows it. */
function isLines(text: string): boolean {
  const trimmed = text.trim();
  const end = trimmed.indexOf('\n');
  if (end < 0) return false;
  try {
    return parse(trimmed.slice(0, end)).kind === 'object';
  } catch {
    return false;
  }
}

function readJson(text: string): Import {
  try {
    const root = parse(text);
    const isList = root.kind === 'array';
    const list = isList ? root : (member(root, 'docs') ?? member(root, 'rows'));
    const fromRows = !isList && member(root, 'docs') === undefined && list !== undefined;
    const nodes = list?.children ?? [root];
    const docs = fromRows ? nodes.map((row) => member(row, 'doc')).filter((doc) => doc !== undefined) : nodes;
    const problems = docs.flatMap((doc, index) => (doc.kind === 'object' ? [] : [`Element ${index + 1} is no object.`])).slice(0, PROBLEMS_MAX);
    return { format: 'JSON', docs: docs.filter((doc) => doc.kind === 'object').map((doc) => raw(text, doc)), problems };
  } catch (error) {
    return { format: 'JSON', docs: [], problems: [describe(text, error)] };
  }
}

function describe(text: string, error: unknown): string {
  if (!(error instanceof JsonError)) throw error;
  const { line, column } = place(text, error.at);
  return `Line ${line}, column ${column}: ${error.message}.`;
}

function readLines(text: string): Import {
  const found: Import = { format: 'NDJSON', docs: [], problems: [] };
  text.split(/\r?\n/).forEach((line, index) => {
    if (line.trim() === '') return;
    try {
      if (parse(line).kind === 'object') found.docs.push(line);
      else if (found.problems.length < PROBLEMS_MAX) found.problems.push(`Line ${index + 1} is no object.`);
    } catch (error) {
      if (!(error instanceof JsonError)) throw error;
      if (found.problems.length < PROBLEMS_MAX) found.problems.push(`Line ${index + 1}, column ${error.at + 1}: ${error.message}.`);
    }
  });
  return found;
}

/** The first line names the members; numbers, `true`, `false` and `null` become what they look like, exactly as they are written. */
function readCsv(text: string): Import {
  const body = text.replace(/^\uFEFF/, '');
  const records = csvRecords(body, separator(body));
  const [head = [], ...rest] = records;
  const problems: string[] = [];
  const docs = rest.map((record, index) => {
    if (record.length !== head.length && problems.length < PROBLEMS_MAX) {
      problems.push(`Row ${index + 2} has ${record.length} fields, and the first has ${head.length}.`);
    }
    const members = head.map((name, at) => ({ name, value: record[at] })).filter(({ value }) => value !== undefined && value !== '');
    return `{${members.map(({ name, value }) => `${JSON.stringify(name)}:${csvValue(name, value ?? '')}`).join(',')}}`;
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
      // It only looks like JSON.
    }
  }
  return JSON.stringify(text);
}

export function csvRecords(text: string, comma: string): string[][] {
  const records: string[][] = [];
  let record: string[] = [];
  let at = 0;
  while (at < text.length) {
    let value = '';
    if (text[at] === '"') {
      at += 1;
      for (;;) {
        const quote = text.indexOf('"', at);
        if (quote < 0) {
          value += text.slice(at);
          at = text.length;
          break;
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
      if (record.length > 1 || record[0] !== '') records.push(record);
      record = [];
    } else if (at === text.length - 1) record.push('');
    at += 1;
  }
  if (record.length > 0) records.push(record);
  return records;
}
