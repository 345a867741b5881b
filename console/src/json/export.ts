/** Export formats: a JSON array, NDJSON and CSV. Numbers and strings are written exactly as the server returned them. */
import { compact, parse, plain, raw } from './text.ts';

export type ExportFormat = 'JSON' | 'NDJSON' | 'CSV';
export const FORMATS: ExportFormat[] = ['JSON', 'NDJSON', 'CSV'];
export const TYPES: Record<ExportFormat, string> = { JSON: 'application/json', NDJSON: 'application/x-ndjson', CSV: 'text/csv' };
export const ENDINGS: Record<ExportFormat, string> = { JSON: 'json', NDJSON: 'ndjson', CSV: 'csv' };

export const line = (text: string) => (text.includes('\n') ? compact(text) : text.trim());

const quoted = (text: string) => (/[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** Returns one row of CSV. Cells of objects and arrays contain JSON; cells of missing members are empty. */
export function csvRow(object: string, columns: readonly string[]): string {
  const root = parse(object);
  return columns.map((name) => {
    const child = root.children?.[root.keys?.lastIndexOf(name) ?? -1];
    if (!child) return '';
    return quoted(child.kind === 'string' ? plain(object, child) : raw(object, child));
  }).join(',');
}

export const csvHead = (columns: readonly string[]) => columns.map(quoted).join(',');

export function addColumns(columns: Set<string>, object: string): void {
  for (const name of parse(object).keys ?? []) columns.add(name);
}
