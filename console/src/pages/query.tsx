/** Mango queries: editor, results, plan and indexes. */
import { useEffect, useMemo, useState } from 'preact/hooks';
import { findSource } from '../api/export.ts';
import { ApiError, get, send } from '../api/http.ts';
import { path } from '../api/paths.ts';
import { storeQuery } from '../api/queries.ts';
import { jsonProblems } from '../json/problems.ts';
import { type Sort, columns, fields, readDocs, sortedBy } from '../json/rows.ts';
import { limitOf, orderOf } from '../json/selector.ts';
import { format, member, parse, stringOf } from '../json/text.ts';
import { setParams, useDialog, useParam } from '../router.ts';
import { Restored, useLinkedDraft } from '../ui/draft.tsx';
import { Editor } from '../ui/editor.tsx';
import { Button, Card, Empty, Link, Notice, Problem, Segments, showToast } from '../ui/kit.tsx';
import { ColumnChoice, ResizeHandle, useChosenColumns, useWidths } from '../ui/columns.tsx';
import { Export } from '../ui/export.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { SortHead } from '../ui/sort.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { millis, number, plural } from '../ui/words.ts';
import type { DbPage } from './db.tsx';
import { cell } from './documents.tsx';
import { Builder } from './builder.tsx';
import { EditMany } from './bulk-edit.tsx';
import { type Explained, Plan, suggestion } from './explain.tsx';
import { type Index, Indexes, NewIndex } from './indexes.tsx';
import { PartitionField, usePartition } from './partition.tsx';
import { Queries } from './queries.tsx';

const START = '{\n  "selector": {\n    "_id": { "$gt": null }\n  },\n  "limit": 25\n}';
const OPERATORS = ['$and', '$or', '$not', '$nor', '$eq', '$ne', '$gt', '$gte', '$lt', '$lte', '$in', '$nin', '$exists', '$type', '$regex', '$beginsWith', '$elemMatch', '$allMatch', '$keyMapMatch', '$size', '$all', '$mod', 'selector', 'fields', 'sort', 'limit', 'use_index', 'execution_stats'];

interface Found {
  /** The query, without a bookmark. */
  query: string;
  docs: string[];
  /** True if the server has no further documents. */
  isComplete: boolean;
  warning: string | undefined;
  stats: string | undefined;
  bookmark: string | undefined;
  ms: number;
}

/** Returns the body of the request: the query as typed, with execution statistics and the bookmark. */
function requestBody(text: string, bookmark: string | undefined): string {
  const root = parse(text);
  const extra = [
    ...(member(root, 'execution_stats') ? [] : ['"execution_stats":true']),
    ...(bookmark === undefined ? [] : [`"bookmark":${JSON.stringify(bookmark)}`]),
  ];
  const inner = text.slice(root.start + 1, root.end - 1);
  return `{${[...extra, ...(inner.trim() === '' ? [] : [inner])].join(',')}}`;
}

export function Query({ db, info }: DbPage) {
  const [saved] = useParam('q');
  const [tab, setTab] = useParam('show', 'docs');
  const [dialog, setDialog] = useDialog();
  const partition = usePartition(db, info);
  const edited = useLinkedDraft(['query', db], saved, START);
  const { text, setText } = edited;
  const [found, setFound] = useState<Found>();
  const [explained, setExplained] = useState<Explained>();
  const { busy, error, run } = useAction();
  const indexes = useRequest((signal) => get<{ indexes: Index[] }>(path`${db}/_index`, signal).then((answer) => answer.indexes), [db]);
  const sample = useRequest((signal) => send('GET', path`${db}/_all_docs?include_docs=true&limit=20`, { signal }).then((answer) => names(answer.text)), [db]);
  const explain = async (body: string) => setExplained(JSON.parse((await send('POST', `${partition.path}/_explain`, { body })).text) as Explained);
  const find = (bookmark?: string) => void run(async () => {
    const text = edited.now();
    setParams({ q: text }, true);
    edited.linked(text);
    const { text: answer, ms } = await send('POST', `${partition.path}/_find`, { body: requestBody(text, bookmark) });
    const page = readDocs(answer);
    if (bookmark === undefined) storeQuery(db, { text });
    setFound((old) => ({ ...page, query: text, docs: bookmark === undefined || !old ? page.docs : [...old.docs, ...page.docs], isComplete: page.docs.length < Number(limitOf(text)), ms }));
    await explain(text);
  });
  useEffect(() => {
    if (saved !== '' && edited.text === saved) find();
  }, []);
  const createIndex = (names: string[]) => void run(async () => {
    await send('POST', path`${db}/_index`, { body: JSON.stringify({ index: { fields: names }, name: `by-${names.join('-')}`.slice(0, 100), type: 'json' }) });
    showToast(`An index on ${names.join(', ')} is created.`);
    indexes.again();
    await explain(text);
  });
  const isUnsorted = error instanceof ApiError && error.error === 'no_usable_index';
  const sortField = isUnsorted ? orderOf(text)?.field ?? '' : '';
  const suggested = sortField !== '' ? [sortField] : explained && suggestion(explained);
  return (
    <div class="play">
      <div class="stack">
        <Card title="Query" actions={<><Button kind="quiet" icon="history" onClick={() => setDialog('queries')}>Queries</Button><CopyAs request={{ method: 'POST', path: `${partition.path}/_find`, body: text }} /></>}>
          <PartitionField db={db} info={info} />
          <Builder text={text} names={sample.data ?? []} onText={setText} />
          <Editor label="Mango query" language="json" value={text} onValue={setText} problems={jsonProblems} onSave={() => find()} lines={[10, 24]} complete={() => [...OPERATORS, ...(sample.data ?? [])]} />
          <div class="actions"><Button kind="primary" icon="play" busy={busy} onClick={() => find()}>Find</Button><Button onClick={() => void run(async () => { setParams({ q: text, show: 'plan' }); edited.linked(text); await explain(text); })}>Explain</Button><Button kind="quiet" onClick={() => { try { setText(format(text)); } catch { /* The editor marks the error. */ } }}>Format</Button><span class="note hide-small"><kbd>Ctrl Enter</kbd> finds</span></div>
        </Card>
        <Restored found={edited.restored} onDiscard={edited.discard} />
        <Problem error={error} />
        {suggested && suggested.length > 0 && (
          <Notice kind="warn"><p>{sortField === '' ? 'No index can be used for this query, so the server reads every document. To avoid this, create an index on' : 'The server sorts results only by an index. Create an index on'} <strong>{suggested.join(', ')}</strong>.</p><p><Button busy={busy} icon="plus" onClick={() => createIndex(suggested)}>Create this index</Button></p></Notice>
        )}
        <Indexes db={db} indexes={indexes.data} again={indexes.again} onNew={() => setDialog('index')} />
      </div>
      <div class="stack">
        <div class="row spread"><Segments label="Show" value={tab} onValue={setTab} options={[['docs', 'Documents'], ['json', 'JSON'], ['plan', 'Plan']]} />{found && <div class="actions">{tab === 'docs' && <Button icon="table" onClick={() => setDialog('columns')}>Columns</Button>}<Button disabled={found.docs.length === 0} onClick={() => setDialog('edit')}>Edit all</Button><Export name={`${db}-query`} source={() => findSource(`${partition.path}/_find`, edited.now())} /></div>}</div>
        {tab === 'plan' ? (explained ? <Plan explained={explained} stats={found?.stats} /> : <Card><Empty icon="branch" title="No plan yet">Explain a query to see the index that it uses.</Empty></Card>)
          : found ? <Results db={db} found={found} display={tab} busy={busy} hasAdvice={suggested !== undefined && suggested.length > 0} columnsOpen={dialog === 'columns'} onColumnsClosed={() => setDialog('')} onMore={() => find(found.bookmark)} /> : <Card><Empty icon="filter" title="No query has run">A selector consists of fields and conditions on their values. Ctrl-Space in the editor lists operators and fields.</Empty></Card>}
      </div>
      {dialog === 'queries' && <Queries db={db} text={text} onChoose={(chosen) => { setText(chosen); setDialog(''); }} onClose={() => setDialog('')} />}
      {dialog === 'edit' && found && <EditMany db={db} chosen={{ find: `${partition.path}/_find`, query: found.query }} names={sample.data ?? []} onClose={() => setDialog('')} onDone={() => find()} />}
      {dialog === 'index' && <NewIndex db={db} names={sample.data ?? []} onClose={() => setDialog('')} onDone={indexes.again} />}
    </div>
  );
}

function names(text: string): string[] {
  const rows = member(parse(text), 'rows')?.children ?? [];
  return [...new Set(rows.flatMap((row) => member(row, 'doc')?.keys ?? []))].sort();
}

interface Stats {
  total_keys_examined: number;
  total_docs_examined: number;
  results_returned: number;
  execution_time_ms: number;
}

interface ResultsProps {
  db: string;
  found: Found;
  display: string;
  busy: boolean;
  hasAdvice: boolean;
  columnsOpen: boolean;
  onColumnsClosed: () => void;
  onMore: () => void;
}

const COLUMNS_MAX = 6;
const CHOICES_MAX = 200;

function Results({ db, found, display, busy, hasAdvice, columnsOpen, onColumnsClosed, onMore }: ResultsProps) {
  const rows = useMemo(() => found.docs.map(fields), [found.docs]);
  const all = useMemo(() => columns(rows, CHOICES_MAX), [rows]);
  const [chosen, setChosen] = useChosenColumns();
  const [widths, resize] = useWidths(db);
  const shown = chosen.length > 0 ? chosen : all.slice(0, COLUMNS_MAX);
  const sized = (name: string) => (widths[name] === undefined ? {} : { style: { width: `${widths[name]}px`, minWidth: `${widths[name]}px`, maxWidth: `${widths[name]}px` } });
  const [sort, setSort] = useState<Sort>();
  const indexed = rows.map((row, index) => ({ row, index }));
  const sorted = sort ? sortedBy(indexed, ({ row }) => row.get(sort.name), sort.descending) : indexed;
  const stats = found.stats === undefined ? undefined : (JSON.parse(found.stats) as Stats);
  const ids = found.docs.map((doc) => stringOf(doc, member(parse(doc), '_id')));
  return (
    <>
      {found.warning && !(hasAdvice && found.warning.includes('index')) && <Notice kind="warn">{found.warning}</Notice>}
      <Card flush title={plural(found.docs.length, 'document')} note={`${stats ? `${number(stats.total_docs_examined)} documents and ${number(stats.total_keys_examined)} keys examined · ` : ''}answered in ${millis(found.ms)}`}>
        {found.docs.length === 0 && <Empty icon="search" title="No document matches">Change the selector, or read the plan.</Empty>}
        {display === 'json' && found.docs.map((doc, index) => <div key={index}><p class="inner"><DocLink db={db} id={ids[index]} /></p><pre class="json">{doc.length > 20_000 ? doc.slice(0, 2000) : format(doc)}</pre></div>)}
        {display !== 'json' && found.docs.length > 0 && (
          <div class="table-wrap" tabIndex={0} role="region" aria-label="Documents found"><table class="one-line">
            <caption class="unseen">Documents found</caption>
            <thead><tr>{['_id', ...shown].map((name) => <SortHead key={name} name={name} kind="sized" sort={sort} onSort={setSort} {...sized(name)}><ResizeHandle name={name} width={widths[name]} onWidth={(width) => resize(name, width)} /></SortHead>)}</tr></thead>
            <tbody>{sorted.map(({ row, index }) => <tr key={index}><td {...sized('_id')}><DocLink db={db} id={ids[index]} /></td>{shown.map((name) => <td key={name} {...sized(name)}>{cell(row.get(name))}</td>)}</tr>)}</tbody>
          </table></div>
        )}
      </Card>
      {sort && !found.isComplete && display !== 'json' && <p class="list-foot" role="status">Only the loaded documents are sorted by {sort.name}. “Sort by” in the form sorts all documents by an index.</p>}
      {!found.isComplete && found.bookmark !== undefined && found.bookmark !== 'nil' && <div><Button busy={busy} onClick={onMore}>More</Button></div>}
      {columnsOpen && <ColumnChoice names={all} shown={shown} onChoose={setChosen} onClose={onColumnsClosed} />}
    </>
  );
}

function DocLink({ db, id }: { db: string; id: string | undefined }) {
  return id === undefined ? <span class="quiet-text">not among the fields</span> : <Link to={['db', db, 'doc', id]}>{id}</Link>;
}
