/** Objects as a file: a JSON array, NDJSON, or CSV. Numbers and strings stay as the server wrote them. */
import { compact, parse, plain, raw } from './text.ts';

export type ExportFormat = 'JSON' | 'NDJSON' | 'CSV';
export const FORMATS: ExportFormat[] = ['JSON', 'NDJSON', 'CSV'];
export const TYPES: Record<ExportFormat, string> = { JSON: 'application/json', NDJSON: 'application/x-ndjson', CSV: 'text/csv' };
export const ENDINGS: Record<ExportFormat, string> = { JSON: 'json', NDJSON: 'ndjson', CSV: 'csv' };

/** One object on one line. */
export const line = (text: string) => (text.includes('\n') ? compact(text) : text.trim());

const quoted = (text: string) => (/[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** The members of an object as one row of CSV. Objects and arrays are cells of JSON; members that are missing are empty cells. */
export function csvRow(object: string, columns: readonly string[]): string {
  const root = parse(object);
  return columns.map((name) => {
    const child = root.children?.[root.keys?.lastIndexOf(name) ?? -1];
    if (!child) return '';
    return quoted(child.kind === 'string' ? plain(object, child) : raw(object, child));
  }).join(',');
}

/** The first row of a CSV file. */
export const csvHead = (columns: readonly string[]) => columns.map(quoted).join(',');

/** Adds the names of the members of an object that are not there yet. */
export function addColumns(columns: Set<string>, object: string): void {
  for (const name of parse(object).keys ?? []) columns.add(name);
}
