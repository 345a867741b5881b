/** The plan of a query as a diagram (index, documents, filter, answer), and the indexes that were not used. */
import { Icon } from '../ui/icons.tsx';
import { Card, Json, Tag } from '../ui/kit.tsx';
import { number } from '../ui/words.ts';

export interface Candidate {
  index: { ddoc: string | null; name: string; type: string; def: { fields?: Record<string, string>[] } };
  analysis: { usable: boolean; reasons?: { name: string }[]; ranking?: number; covering?: boolean | null };
}

export interface Explained {
  index: { ddoc: string | null; name: string; type: string; def: { fields?: Record<string, string>[] } };
  selector: unknown;
  covering?: boolean;
  limit?: number;
  skip?: number;
  fields?: unknown;
  mrargs?: { start_key?: unknown; end_key?: unknown; startkey?: unknown; endkey?: unknown };
  index_candidates?: Candidate[];
}

/** Returns the fields of a suitable index, beginning with those that are compared for equality. */
export function suggestion(explained: Explained): string[] {
  if (explained.index.type !== 'special') return [];
  const equal: string[] = [];
  const ranged: string[] = [];
  const walk = (selector: unknown, prefix: string) => {
    if (selector === null || typeof selector !== 'object' || Array.isArray(selector)) return;
    for (const [name, value] of Object.entries(selector as Record<string, unknown>)) {
      if (name === '$and' && Array.isArray(value)) value.forEach((each: unknown) => walk(each, prefix));
      if (name.startsWith('$') || prefix !== '') continue;
      const operators = value !== null && typeof value === 'object' && !Array.isArray(value) ? Object.keys(value) : ['$eq'];
      if (operators.includes('$eq')) equal.push(name);
      else if (operators.some((operator) => ['$gt', '$gte', '$lt', '$lte', '$in', '$beginsWith', '$exists'].includes(operator))) ranged.push(name);
    }
  };
  walk(explained.selector, '');
  return [...new Set([...equal, ...ranged])].filter((name) => name !== '_id').slice(0, 4);
}

const REASONS: Record<string, string> = {
  field_mismatch: 'has fields that the query does not restrict', sort_order_mismatch: 'its order differs', needs_text_search: 'the query needs a text index',
  excluded_by_user: 'use_index selects another index', alphabetically_comes_after: 'equivalent, but later in the order of names', empty_selector: 'the selector is empty',
  less_overlap: 'shares fewer fields with the query', too_many_fields: 'has more fields than needed', is_partial: 'contains only a part of the documents',
  scope_mismatch: 'belongs to another scope', unfavored_type: 'another kind of index is preferred',
};

const fieldsOf = (index: Explained['index']) => (index.def.fields ?? []).flatMap((field) => Object.keys(field)).join(', ');

export function Plan({ explained, stats }: { explained: Explained; stats: string | undefined }) {
  const { index, mrargs } = explained;
  const isScan = index.type === 'special';
  const counts = stats === undefined ? undefined : (JSON.parse(stats) as { total_keys_examined: number; total_docs_examined: number; results_returned: number });
  const start = mrargs?.start_key ?? mrargs?.startkey;
  const end = mrargs?.end_key ?? mrargs?.endkey;
  const arrow = <div class="plan-arrow"><Icon name="right" /></div>;
  return (
    <div class="stack">
      <div class="plan-box"><div class="plan" role="group" aria-label="Plan of the query">
        <div class={`plan-step ${isScan ? 'bad' : 'main'}`}>
          <p>{isScan ? 'All documents' : `Index on ${fieldsOf(index)}`}</p>
          <p class="note">{isScan ? 'no index can be used' : `${index.ddoc?.replace('_design/', '') ?? ''} / ${index.name}`}</p>
          {!isScan && start !== undefined && <p class="note mono break">{JSON.stringify(start)} … {JSON.stringify(end)}</p>}
          {counts && <p class="note">{number(isScan ? counts.total_docs_examined : Math.max(counts.total_keys_examined, counts.total_docs_examined))} read</p>}
        </div>
        {arrow}
        <div class="plan-step"><p>{explained.covering ? 'No documents' : 'Documents'}</p><p class="note">{explained.covering ? 'the index holds all requested fields' : 'fetched by id'}</p>{counts && <p class="note">{number(counts.total_docs_examined)} examined</p>}</div>
        {arrow}
        <div class="plan-step"><p>Filter</p><p class="note">the conditions that the index does not cover</p></div>
        {arrow}
        <div class="plan-step"><p>Answer</p><p class="note">{explained.skip ? `skips ${explained.skip}, ` : ''}at most {number(explained.limit ?? 25)}</p>{counts && <p class="note">{number(counts.results_returned)} returned</p>}</div>
      </div></div>
      {explained.index_candidates && explained.index_candidates.length > 0 && (
        <Card flush title="Other indexes"><ul class="key-list">{explained.index_candidates.map((candidate, at) => (
          <li key={at} class="row spread" style={{ padding: '8px 16px' }}><span>{fieldsOf(candidate.index) || candidate.index.name}</span>
            <span class="row">{(candidate.analysis.reasons ?? []).map(({ name }) => <span key={name} class="note">{REASONS[name] ?? name.replaceAll('_', ' ')}</span>)}<Tag kind={candidate.analysis.usable ? 'good' : 'plain'}>{candidate.analysis.usable ? 'usable' : 'not usable'}</Tag></span></li>
        ))}</ul></Card>
      )}
      <Card flush title="Selector as the server normalizes it"><Json text={JSON.stringify(explained.selector, null, 2)} label="Selector as the server normalizes it" /></Card>
    </div>
  );
}
