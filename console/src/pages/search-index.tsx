/** Editor of a search index: function, analyzers, and a form that queries it. */
import { useState } from 'preact/hooks';
import { saveText } from '../api/design.ts';
import { ApiError, post, send } from '../api/http.ts';
import { designPath, path, query } from '../api/paths.ts';
import { getAt, setAt } from '../json/edit.ts';
import { member, parse, plain, raw, stringOf, withMembers } from '../json/text.ts';
import { setParams } from '../router.ts';
import { ChoiceField } from '../ui/choice.tsx';
import { Restored, useDraft } from '../ui/draft.tsx';
import { Editor } from '../ui/editor.tsx';
import { Button, Card, Confirm, Field, Link, Notice, Problem, TextArea, showToast } from '../ui/kit.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { plural } from '../ui/words.ts';

export type SearchKind = 'nouveau' | 'indexes';

export const SEARCH_STARTS: Record<SearchKind, string> = {
  nouveau: "function (doc) {\n  if (typeof doc.title === 'string') {\n    index('text', 'default', doc.title, { store: true });\n  }\n}",
  indexes: "function (doc) {\n  if (typeof doc.title === 'string') {\n    index('default', doc.title, { store: true });\n  }\n}",
};

export const newSearchIndex = (kind: SearchKind) => JSON.stringify(kind === 'nouveau' ? { default_analyzer: 'standard', index: SEARCH_STARTS.nouveau } : { analyzer: 'standard', index: SEARCH_STARTS.indexes });

const ANALYZERS = [
  'standard', 'keyword', 'simple', 'whitespace', 'classic', 'email', 'simple_asciifolding', 'arabic', 'armenian', 'basque', 'bulgarian', 'catalan', 'cjk', 'czech', 'danish', 'dutch', 'english', 'finnish', 'french', 'galician', 'german',
  'greek', 'hindi', 'hungarian', 'indonesian', 'irish', 'italian', 'latvian', 'norwegian', 'persian', 'polish', 'romanian', 'russian', 'spanish', 'swedish', 'thai', 'turkish',
];

interface Analyzers {
  main: string;
  /** One `field: analyzer` per line. */
  fields: string;
}

const textAt = (text: string, at: string[]) => {
  const found = getAt(text, at);
  return found === undefined ? '' : plain(found, parse(found));
};

function linesOf(definition: string, at: string[]): string {
  const found = getAt(definition, at);
  const node = found === undefined ? undefined : parse(found);
  return (node?.keys ?? []).map((name, index) => `${name}: ${plain(found ?? '', node?.children?.[index] ?? { kind: 'string', start: 0, end: 0 })}`).join('\n');
}

export function readAnalyzers(kind: SearchKind, definition: string): Analyzers {
  if (kind === 'nouveau') return { main: textAt(definition, ['default_analyzer']), fields: linesOf(definition, ['field_analyzers']) };
  const isPlain = parse(getAt(definition, ['analyzer']) ?? '""').kind === 'string';
  if (isPlain) return { main: textAt(definition, ['analyzer']), fields: '' };
  return { main: textAt(definition, ['analyzer', 'default']) || textAt(definition, ['analyzer', 'name']), fields: linesOf(definition, ['analyzer', 'fields']) };
}

/** Returns the definition with these analyzers. Other members are not modified. */
export function writeAnalyzers(kind: SearchKind, definition: string, { main, fields }: Analyzers): string {
  const byField = fields.split('\n').map((line) => /^\s*(.+?)\s*:\s*(\S+)\s*$/.exec(line)).flatMap((found) => (found ? [[found[1] ?? '', found[2] ?? '']] : []));
  const each = byField.length === 0 ? undefined : JSON.stringify(Object.fromEntries(byField));
  const mainText = main === '' ? undefined : JSON.stringify(main);
  if (kind === 'nouveau') return withMembers(definition, { default_analyzer: mainText, field_analyzers: each });
  return withMembers(definition, { analyzer: each === undefined ? mainText : `{"name":"perfield","default":${mainText ?? '"standard"'},"fields":${each}}` });
}

interface SearchIndexProps {
  db: string;
  ddoc: string;
  text: string;
  kind: SearchKind;
  name: string;
  onSaved: (text: string) => void;
  again: () => void;
}

export function SearchIndex({ db, ddoc, text, kind, name, onSaved, again }: SearchIndexProps) {
  const part = `${kind}/${name}`;
  const stored = getAt(text, [kind, name]);
  const edited = useDraft(['design', db, ddoc, part], stored ?? '{}', stored ?? '');
  const [confirming, setConfirming] = useState(false);
  const { busy, error, run } = useAction();
  if (stored === undefined) return <Notice>This design document has no search index {name}.</Notice>;
  const definition = edited.text;
  const change = (next: string) => edited.setText(next);
  const save = () => void run(async () => {
    const sent = edited.now();
    const newest = (await send('GET', designPath(db, ddoc))).text;
    if (getAt(newest, [kind, name]) !== stored) {
      onSaved(newest);
      throw new Error(`${part} was saved by another client. Save again to replace it.`);
    }
    const body = setAt(newest, [kind, name], sent);
    const rev = await saveText(db, ddoc, body);
    onSaved(withMembers(body, { _rev: JSON.stringify(rev) }));
    edited.saved(sent, { base: sent, rebase: (typed) => typed });
    showToast(`${part} is saved.`);
    again();
  });
  return (
    <div class="stack">
      <Restored found={edited.restored} onDiscard={edited.discard} />
      <Card title="Index function"><Editor label={`Index function of ${name}`} language="javascript" value={textAt(definition, ['index'])} onValue={(code) => change(setAt(edited.now(), ['index'], JSON.stringify(code)))} onSave={save} lines={[8, 24]} complete={() => ['index', 'doc', 'store', 'facet', 'isArray', 'log']} /></Card>
      <AnalyzerCard kind={kind} definition={definition} onChange={change} />
      <Problem error={error} />
      <div class="row spread">
        <div class="actions"><Button kind="primary" icon="check" busy={busy} disabled={!edited.isChanged} onClick={save}>Save</Button>{edited.isChanged && <Button kind="quiet" onClick={edited.discard}>Undo all</Button>}</div>
        <Button kind="danger" icon="trash" onClick={() => setConfirming(true)}>Delete search index</Button>
      </div>
      <QueryBox db={db} ddoc={ddoc} kind={kind} name={name} isChanged={edited.isChanged} />
      {confirming && <Confirm title={`Delete ${part}?`} verb="Delete" onClose={() => setConfirming(false)} act={async () => {
        await saveText(db, ddoc, setAt(text, [kind, name], undefined));
        edited.discard();
        setParams({ part: undefined });
        again();
      }}><p>Searches of this index will fail.</p></Confirm>}
    </div>
  );
}

function AnalyzerCard({ kind, definition, onChange }: { kind: SearchKind; definition: string; onChange: (definition: string) => void }) {
  const analyzers = readAnalyzers(kind, definition);
  // The typed lines, which may be incomplete; the definition contains complete lines only.
  const [lines, setLines] = useState(analyzers.fields);
  const [sample, setSample] = useState('');
  const set = (next: Partial<Analyzers>) => onChange(writeAnalyzers(kind, definition, { ...analyzers, fields: lines, ...next }));
  const analyzer = analyzers.main || 'standard';
  const tokens = useRequest((signal) => (sample === '' ? Promise.resolve(undefined) : post<{ tokens: string[] }>(kind === 'nouveau' ? '_nouveau_analyze' : '_search_analyze', { analyzer, text: sample }, signal)), [sample, analyzer, kind]);
  return (
    <Card title="Analyzers" note="An analyzer splits a text into the terms that searches match.">
      <div class="grid-2">
        <div class="stack small">
          <ChoiceField label="Default analyzer" value={analyzers.main} onValue={(main) => set({ main })} choices={ANALYZERS} placeholder="standard" mono />
          <TextArea label="Analyzers by field" value={lines} onValue={(fields) => { setLines(fields); set({ fields }); }} rows={3} mono hint="One field: analyzer per line, such as shelf: keyword." />
        </div>
        <div class="stack small">
          <Field label="Text to analyze" value={sample} onValue={setSample} placeholder="Running sofas" />
          {tokens.error && sample !== '' && <p class="hint problem">{tokens.error.message}</p>}
          {tokens.data && <div class="chips" role="status" aria-label="Terms">{tokens.data.tokens.map((token, index) => <code key={index} class="tag">{token}</code>)}</div>}
        </div>
      </div>
    </Card>
  );
}

const ENDPOINT: Record<SearchKind, string> = { nouveau: '_nouveau', indexes: '_search' };

/** Queries the stored index and lists the first hits. */
function QueryBox({ db, ddoc, kind, name, isChanged }: { db: string; ddoc: string; kind: SearchKind; name: string; isChanged: boolean }) {
  const [q, setQ] = useState('');
  const [found, setFound] = useState<{ total: number; hits: { id: string; fields: string }[] }>();
  const { busy, error, run } = useAction();
  const endpoint = ENDPOINT[kind];
  const search = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const { text } = await send('GET', path`${db}/_design/${ddoc}/${endpoint}/${name}` + query({ q, limit: 10 }));
      const root = parse(text);
      const hits = (member(root, 'hits') ?? member(root, 'rows'))?.children ?? [];
      const total = member(root, 'total_hits') ?? member(root, 'total_rows');
      setFound({
        total: total ? Number(raw(text, total)) : hits.length,
        hits: hits.map((hit) => {
          const fields = member(hit, 'fields');
          return { id: stringOf(text, member(hit, 'id')) ?? '', fields: fields ? raw(text, fields).slice(0, 300) : '' };
        }),
      });
    });
  };
  const isMissing = error instanceof ApiError && error.status === 404;
  return (
    <Card title="Query this index" note={isChanged ? 'Searches use the saved index, without the changes above.' : undefined}>
      <form class="row end" onSubmit={search}>
        <div class="grow"><Field label="Lucene query" value={q} onValue={setQ} mono required placeholder="title:sofa AND price:[10 TO *]" /></div>
        <Button type="submit" icon="search" busy={busy}>Search</Button>
      </form>
      <Problem error={isMissing ? new Error('This server does not support search indexes of this kind.') : error} />
      {found && (
        <>
          <p class="note" role="status">{plural(found.total, 'hit')}. <Link to={['db', db, 'search']} query={{ index: `${ddoc}/${endpoint}/${name}`, q }}>Open the search page</Link></p>
          <ul class="stack small">{found.hits.map(({ id, fields }) => <li key={id} class="row"><Link to={['db', db, 'doc', id]}>{id}</Link><code class="cut note">{fields}</code></li>)}</ul>
        </>
      )}
    </Card>
  );
}
