import { ApiError, get, post, send } from './http.ts';
import { designPath, path } from './paths.ts';

export interface ViewDefinition {
  map?: unknown;
  reduce?: unknown;
}

export interface DesignDoc {
  _id: string;
  _rev: string;
  language?: string;
  views?: Record<string, ViewDefinition>;
  nouveau?: Record<string, unknown>;
  indexes?: Record<string, unknown>;
  filters?: Record<string, string>;
  updates?: Record<string, string>;
  shows?: Record<string, string>;
  lists?: Record<string, string>;
  validate_doc_update?: string;
  options?: Record<string, unknown>;
  autoupdate?: boolean;
}

export interface IndexInfo {
  name: string;
  view_index: { sizes: { file: number; external: number; active: number }; updater_running: boolean; compact_running: boolean; waiting_clients: number; signature: string; language: string; updates_pending?: { total?: number } };
}

export interface Build {
  status: 'current' | 'lagging' | 'building' | 'paused' | 'resting';
  updates_pending: number;
  waiting_clients: number;
  changes_done?: number;
  total_changes?: number;
  progress?: number;
  eta_s?: number | null;
}

export async function designs(db: string, signal?: AbortSignal): Promise<DesignDoc[]> {
  const found = await get<{ rows: { doc?: DesignDoc }[] }>(path`${db}/_design_docs?include_docs=true`, signal).catch(async (error: unknown) => {
    if (!(error instanceof ApiError) || error.status !== 404) throw error;
    return await get<{ rows: { doc?: DesignDoc }[] }>(path`${db}/_all_docs?include_docs=true&startkey=%22_design/%22&endkey=%22_design0%22`, signal);
  });
  return found.rows.flatMap(({ doc }) => (doc ? [doc] : []));
}

export const indexInfo = (db: string, ddoc: string, signal?: AbortSignal) => get<IndexInfo>(`${designPath(db, ddoc)}/_info`, signal);

/** Returns undefined on other servers than Settee and for users who are not permitted to maintain the database. */
export function build(db: string, ddoc: string, signal?: AbortSignal): Promise<Build | undefined> {
  return get<Build>(`${designPath(db, ddoc)}/_build`, signal).then((state) => (state.status ? state : undefined)).catch((error: unknown) => {
    if (error instanceof ApiError && error.status >= 400 && error.status < 500) return undefined;
    throw error;
  });
}

export const controlBuild = (db: string, ddoc: string, action: 'start' | 'pause' | 'resume' | 'cancel') => post(`${designPath(db, ddoc)}/_build`, { action });

export function hasViews(design: DesignDoc): boolean {
  return Object.keys(design.views ?? {}).some((name) => name !== 'lib');
}

export const isMango = (design: DesignDoc) => design.language === 'query';

export const REDUCES = ['_sum', '_count', '_stats', '_approx_count_distinct', '_first', '_last'];

export const MAP = 'function (doc) {\n  emit(doc._id, 1);\n}';

export async function saveText(db: string, ddoc: string, body: string): Promise<string> {
  const { text } = await send('PUT', designPath(db, ddoc), { body });
  return (JSON.parse(text) as { rev: string }).rev;
}
