/** The rows of a view by key, or its groups as a table or a chart. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { designs } from '../api/design.ts';
import { answerSource, rowObject, rowSource } from '../api/export.ts';
import { send } from '../api/http.ts';
import { path as pathOf, query } from '../api/paths.ts';
import { readRows, sortedBy, type Row, type Sort } from '../json/rows.ts';
import { format, parse, plain } from '../json/text.ts';
import { go, setParams, useParam, useRoute } from '../router.ts';
import { Chart } from '../ui/chart.tsx';
import { Button, Card, Check, Empty, Field, Link, LinkButton, ORDERS, Problem, Segments, Select, Skeleton, showToast } from '../ui/kit.tsx';
import { Export } from '../ui/export.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { usePager } from '../ui/pager.ts';
import { useRowPages } from '../ui/row-pages.tsx';
import { SortButton, SortHead } from '../ui/sort.tsx';
import { useRequest } from '../ui/use.ts';
import { Virtual } from '../ui/virtual.tsx';
import { millis, number, plural, short } from '../ui/words.ts';
import { BuildState } from './designs.tsx';
import type { DbPage } from './db.tsx';
import { PartitionField, usePartition } from './partition.tsx';
import { MapErrors } from './map-errors.tsx';
import { SORTED_ROWS_MAX } from './sorted.tsx';

const GROUPS_MAX = 500;

export function View({ db, info }: DbPage) {
  const { path } = useRoute();
  const [ddoc = '', name = ''] = path.slice(3);
  const [shape, setShape] = useParam('show', 'rows');
  const [level, setLevel] = useParam('level', 'exact');
  const [startText, setStart] = useParam('start');
  const [endText, setEnd] = useParam('end');
  const [order] = useParam('order', 'up');
  const [docs] = useParam('docs');
  const [stable] = useParam('update', 'true');
  const known = useRequest((signal) => designs(db, signal), [db]);
  const design = known.data?.find(({ _id }) => _id === `_design/${ddoc}`);
  const definition = design?.views?.[name];
  const reduces = definition?.reduce !== undefined;
  const [problem, keys] = range(startText, endText);
  const common = { ...keys, descending: order === 'down' || undefined, update: stable === 'true' ? undefined : stable };
  const partition = usePartition(db, info);
  const isPartitioned = info?.props?.partitioned === true && design?.options?.['partitioned'] !== false;
  const isReady = known.data !== undefined && definition !== undefined && info !== undefined && (!isPartitioned || partition.name !== '');
  const base = `${isPartitioned ? partition.path : pathOf`${db}`}/${pathOf`_design/${ddoc}/_view/${name}`}`;
  const group = level === 'exact' ? { group: true } : { group_level: level };
  const request = shape === 'rows' ? { reduce: reduces ? false : undefined, include_docs: docs === '1' || undefined, ...common, limit: 50 } : { ...(shape === 'sum' ? {} : group), ...common };
  return (
    <>
      <div class="row spread">
        <h2>{ddoc}/{name}</h2>
        <div class="actions"><BuildState db={db} ddoc={ddoc} /><Export name={`${ddoc}-${name}`} source={() => (shape === 'rows' ? rowSource(base, { reduce: reduces ? false : undefined, include_docs: docs === '1' || undefined, ...common }, rowObject) : answerSource(base + query(request), rowObject))} /><CopyAs request={{ method: 'GET', path: base + query(request) }} /><LinkButton to={['db', db, 'playground']} query={{ ddoc, name }} icon="flask">Try out</LinkButton><LinkButton to={['db', db, 'design', ddoc]} query={{ part: `views/${name}` }} icon="code">Edit</LinkButton></div>
      </div>
      <form class="toolbar" onSubmit={(event) => event.preventDefault()}>
        {isPartitioned && <PartitionField db={db} info={info} required />}
        <Segments label="Show" value={shape} onValue={setShape} options={reduces ? [['rows', 'Rows'], ['groups', 'Groups'], ['chart', 'Chart'], ['sum', 'Total']] : [['rows', 'Rows']]} />
        {(shape === 'groups' || shape === 'chart') && <Select label="Group by" value={level} onValue={setLevel} options={[['exact', 'the whole key'], ...[1, 2, 3, 4, 5].map((each) => [String(each), `${each} of an array's elements`] as [string, string])]} />}
        <div class="grow"><Field label="From key (JSON)" value={startText} onValue={(value) => setStart(value, true)} mono placeholder={'"a" or [2024,1]'} problem={problem === 'start' ? 'This is not JSON.' : undefined} /></div>
        <div class="grow"><Field label="To key (JSON)" value={endText} onValue={(value) => setEnd(value, true)} mono placeholder={'"b" or [2024,{}]'} problem={problem === 'end' ? 'This is not JSON.' : undefined} /></div>
        <Select label="Index" value={stable} onValue={(value) => setParams({ update: value === 'true' ? undefined : value })} options={[['true', 'updated before the read'], ['lazy', 'stale, updated afterwards'], ['false', 'stale, not updated']]} />
      </form>
      <div class="row">
        <Segments label="Order of keys" value={order} onValue={(next) => setParams({ order: next === 'up' ? undefined : next })} options={ORDERS} />
        {shape === 'rows' && <Check label="With documents" checked={docs === '1'} onChecked={(on) => setParams({ docs: on ? '1' : undefined })} />}
      </div>
      {known.data && definition === undefined && <Problem error={new Error(`The view ${ddoc}/${name} does not exist.`)} />}
      {typeof definition?.map === 'string' && <MapErrors db={db} ddoc={ddoc} name={name} map={definition.map} />}
      {isPartitioned && partition.name === '' && <Card><Empty icon="table" title="Choose a partition">This view is partitioned: a request reads one partition.</Empty></Card>}
      {isPartitioned && partition.name === '' ? null : shape === 'rows'
        ? <Rows db={db} path={base} params={{ reduce: reduces ? false : undefined, include_docs: docs === '1' || undefined, update: common.update }} descending={order === 'down'} keys={keys} ready={isReady} />
        : <Groups path={base} params={shape === 'sum' ? { ...common } : { ...group, ...common, limit: GROUPS_MAX }} display={shape} />}
    </>
  );
}

function range(start: string, end: string): ['start' | 'end' | undefined, { startkey?: string; endkey?: string }] {
  const isJson = (text: string) => {
    try {
      parse(text);
      return true;
    } catch {
      return false;
    }
  };
  if (start !== '' && !isJson(start)) return ['start', {}];
  if (end !== '' && !isJson(end)) return ['end', {}];
  return [undefined, { ...(start === '' ? {} : { startkey: start }), ...(end === '' ? {} : { endkey: end }) }];
}

interface RowsProps {
  db: string;
  path: string;
  params: Record<string, string | boolean | undefined>;
  descending: boolean;
  keys: { startkey?: string; endkey?: string };
  ready: boolean;
}

/** The server returns the rows in the order of the keys. A small list is loaded completely, and the browser sorts it by value or by id. */
function Rows({ db, path, params, descending, keys, ready }: RowsProps) {
  const [from] = useParam('from');
  const [by] = useParam('by');
  const [byOrder] = useParam('by-order', 'up');
  const startPosition = useRef(from);
  // The position in the address applies to the initial list only.
  const list = `${JSON.stringify(keys)} ${String(descending)}`;
  const first = useRef(list);
  if (first.current !== list) startPosition.current = '';
  const scrolled = startPosition.current === '' ? {} : { from: at(startPosition.current) };
  const paged = usePager(ready ? { path, params, descending, ...keys, ...scrolled, limit: 50 } : undefined, [path, JSON.stringify(params), descending, JSON.stringify(keys), ready]);
  const isComplete = paged.atFirst && paged.atLast;
  const isSmall = isComplete || (paged.total !== undefined && paged.total <= SORTED_ROWS_MAX);
  const isSorted = by !== '' && isComplete;
  const isFilling = by !== '' && isSmall && !isComplete;
  useEffect(() => {
    if (isFilling && !paged.loading && !paged.error) paged.near(paged.atLast ? 'first' : 'last');
  }, [isFilling, paged.loading, paged.rows.length]);
  const all = isSorted ? sortedBy(paged.rows, (row) => (by === 'value' ? row.value : JSON.stringify(row.id)), byOrder === 'down') : paged.rows;
  // The offset of the server counts from the first row of the view.
  const page = useRowPages({ ...paged, rows: all, ...(Object.keys(keys).length === 0 ? {} : { offset: undefined }) }, `${path} ${list} ${by} ${byOrder}`);
  const { shown } = page;
  const { rows } = shown;
  const sort = isSorted ? { name: by, descending: byOrder === 'down' } : undefined;
  const sortBy = (next: Sort | undefined) => {
    if (next === undefined || isSmall) setParams({ by: next?.name, 'by-order': next?.descending ? 'down' : undefined, from: undefined });
    else showToast(`The list is too long to be sorted by ${next.name} in the browser. The limit is ${number(SORTED_ROWS_MAX)} rows; a range of keys makes the list shorter.`);
  };
  const withDocs = params['include_docs'] === true;
  const template = `minmax(160px, 1fr) minmax(160px, 1fr) ${innerWidth < 720 ? 140 : 240}px ${withDocs ? 'minmax(260px, 2fr)' : ''}`;
  const style = { gridTemplateColumns: template, minWidth: `${withDocs ? 820 : 460}px` };
  const open = (index: number) => {
    const id = rows[index]?.id;
    if (id !== undefined) go(['db', db, 'doc', id]);
  };
  const top = (index: number) => {
    if (by !== '') return;
    const at = page.isPage ? 0 : index;
    const row = rows[at];
    setParams({ from: row && !(at === 0 && shown.atFirst) ? JSON.stringify([row.key, row.id]) : undefined }, true);
  };
  return (
    <div class="docs-area fills">
      <Problem error={paged.error} again={paged.again} />
      {rows.length === 0 && !paged.error && (paged.loading || !ready ? <Skeleton lines={10} /> : <Card><Empty icon="table" title="No rows">The view has no rows in this range of keys.</Empty></Card>)}
      {rows.length > 0 && (
        <Virtual key={page.key} label="Rows of the view" count={rows.length} height={34} shift={shown.shift} order={JSON.stringify(sort)} onNear={shown.near} onTop={top} onOpen={open}
          head={<div class="grid-row head" style={style}><span>key</span><span><SortButton name="value" sort={sort} onSort={sortBy} /></span><span><SortButton name="id" sort={sort} onSort={sortBy} /></span>{withDocs && <span>document</span>}</div>}
          row={(index, active) => {
            const row = rows[index];
            return row && (
              <div class={`grid-row body ${active ? 'active' : ''}`} style={style}>
                <span class="mono" title={row.key.slice(0, 1000)}>{row.key.slice(0, 300)}</span><span class="mono" title={row.value.slice(0, 1000)}>{row.value.slice(0, 300)}</span>
                {row.id === undefined ? <span /> : <Link tabIndex={-1} to={['db', db, 'doc', row.id]}>{row.id}</Link>}{withDocs && <span class="mono">{row.doc?.slice(0, 300)}</span>}
              </div>
            );
          }} />
      )}
      <div class="list-foot"><p role="status">{paged.total === undefined ? '' : `${plural(paged.total, 'row')} in the view`}{isSorted ? ` · all ${plural(all.length, 'row')} of the list, sorted by ${by} in the browser, ${byOrder === 'down' ? 'descending' : 'ascending'}` : ''}{paged.loading ? ' · loading; the server updates the index first …' : ''}</p><span>{paged.ms === undefined ? '' : `answered in ${millis(paged.ms)}`}</span>{page.controls}</div>
    </div>
  );
}

function at(text: string): { key: string; id?: string } | undefined {
  try {
    const [key, id] = JSON.parse(text) as [string, string | null];
    return { key, ...(id === null ? {} : { id }) };
  } catch {
    return undefined;
  }
}

function Groups({ path, params, display }: { path: string; params: Record<string, string | boolean | number | undefined>; display: string }) {
  const [all, setAll] = useState(false);
  const [sort, setSort] = useState<Sort>();
  const result = useRequest(async (signal) => {
    const answer = await send('GET', path + query(params), { signal });
    return { ...readRows(answer.text), ms: answer.ms };
  }, [path, JSON.stringify(params)]);
  if (result.error) return <Problem error={result.error} again={result.again} />;
  if (!result.data) return <Skeleton lines={8} />;
  const { rows, ms } = result.data;
  const foot = <p class="list-foot"><span>{rows.length === GROUPS_MAX ? 'The first ' : ''}{plural(rows.length, 'group')}</span><span>answered in {millis(ms)}</span></p>;
  if (rows.length === 0) return <Card><Empty icon="chart" title="No groups">The view has no rows in this range of keys.</Empty></Card>;
  if (display === 'sum') return <Card title="Total of all rows"><pre class="json">{format(rows[0]?.value ?? 'null')}</pre><p class="note">answered in {millis(ms)}</p></Card>;
  if (display === 'chart') return <><GroupChart rows={rows} />{foot}</>;
  // A part of the groups is not sorted, because its order would not be that of all groups.
  const isComplete = rows.length < GROUPS_MAX;
  const sorted = sort && isComplete ? sortedBy(rows, ({ value }) => value, sort.descending) : rows;
  const shown = all ? sorted : sorted.slice(0, 200);
  return (
    <>
      <Card flush><div class="table-wrap"><table>
        <caption class="unseen">Groups</caption>
        <thead><tr><th scope="col">Key</th>{isComplete ? <SortHead name="value" text="Value" kind="num" sort={sort} onSort={setSort} /> : <th scope="col" class="num">Value</th>}</tr></thead>
        <tbody>{shown.map((row, index) => <tr key={index}><td class="mono">{row.key}</td><td class="num mono">{row.value}</td></tr>)}</tbody>
      </table></div></Card>
      {shown.length < rows.length && <Button onClick={() => setAll(true)}>Show all {number(rows.length)}</Button>}
      {foot}
    </>
  );
}

/** Returns the numbers in the value of a group: the value itself, or members such as those of `_stats`. */
function figures(row: Row): Record<string, number> {
  const value: unknown = JSON.parse(row.value);
  if (typeof value === 'number') return { value };
  if (value === null || typeof value !== 'object') return {};
  const entries = Array.isArray(value) ? value.map((each, index) => [`[${index}]`, each] as const) : Object.entries(value);
  return Object.fromEntries(entries.filter((entry): entry is [string, number] => typeof entry[1] === 'number'));
}

export function GroupChart({ rows }: { rows: Row[] }) {
  const [kind, setKind] = useParam('plot', 'bars');
  const [figure, setFigure] = useParam('figure');
  const values = rows.map(figures);
  const names = [...new Set(values.flatMap((each) => Object.keys(each)))];
  const chosen = names.includes(figure) ? figure : (names[0] ?? '');
  if (chosen === '') return <Card><Empty icon="chart" title="The values are not numbers">A chart needs numbers, or objects of numbers like those of _stats.</Empty></Card>;
  const ticks = rows.map((row) => plain(row.key, parse(row.key)).replace(/^\[|\]$/g, ''));
  return (
    <Card title={chosen === 'value' ? 'Value by key' : `${chosen} by key`} actions={
      <>
        {names.length > 1 && <Select label="Figure" hideLabel value={chosen} onValue={setFigure} options={names} />}
        <Segments label="Draw as" value={kind} onValue={setKind} options={[['bars', 'Bars'], ['lines', 'Line']]} />
      </>
    }>
      <Chart key={kind} label={`${chosen} by key`} names={[chosen]} data={[rows.map((_, index) => index), values.map((each) => each[chosen] ?? null)]} ticks={ticks} bars={kind === 'bars'} height={320} format={short} />
    </Card>
  );
}
