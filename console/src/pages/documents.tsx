/** The documents of a database by id, as a table of their members, as JSON, or as a list of revisions. */
import { useMemo, useRef, useState } from 'preact/hooks';
import { answerSource, rowSource } from '../api/export.ts';
import { query } from '../api/paths.ts';
import { type Row, type Sort, columns, membersOf } from '../json/rows.ts';
import { format, member, parse, plain, raw, stringOf } from '../json/text.ts';
import { go, setParams, useDialog, useParam } from '../router.ts';
import { Button, Dialog, Empty, Field, Link, LinkButton, ORDERS, Problem, Segments, Skeleton, TextArea } from '../ui/kit.tsx';
import { ColumnChoice, ResizeHandle, useChosenColumns, useWidths } from '../ui/columns.tsx';
import { Export } from '../ui/export.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { type Paged, pageSize, usePager } from '../ui/pager.ts';
import { useCommands } from '../ui/palette.tsx';
import { useRowPages } from '../ui/row-pages.tsx';
import { SortButton } from '../ui/sort.tsx';
import { useSettled } from '../ui/use.ts';
import { Virtual } from '../ui/virtual.tsx';
import { millis, number, plural } from '../ui/words.ts';
import { Cell, type CellAt } from './cell.tsx';
import { DeleteMany } from './bulk.tsx';
import { EditMany } from './bulk-edit.tsx';
import type { DbPage } from './db.tsx';
import { PartitionField, usePartition } from './partition.tsx';
import { NoIndex, orderNote, useSorted } from './sorted.tsx';

type Display = 'table' | 'json' | 'meta';
const COLUMNS_MAX = 7;
const CHOICES_MAX = 200;
const CARD_HEIGHT = 172;
const ROW_HEIGHT = 34;
/** Target size of the first page if it includes documents. */
const FIRST_BYTES = 200_000;
const FIRST_ROWS_MAX = 50;
/** Order of a list for which none is chosen. */
const ID_ORDER: Sort = { name: '', descending: false };

export function Documents({ db, info, again }: DbPage) {
  const [display, setDisplay] = useParam('view', 'table');
  const [typed] = useParam('q');
  const [order, setOrder] = useParam('order', 'up');
  const [by] = useParam('by');
  const [keys] = useParam('keys');
  const [from] = useParam('from');
  const [dialog, setDialog] = useDialog();
  const prefix = useSettled(typed, 150);
  const partition = usePartition(db, info);
  const [picked, setPicked] = useState(new Map<string, string>());
  const startId = useRef(from);
  const withDocs = display !== 'meta' || by !== '';
  const average = info && info.doc_count > 0 ? info.sizes.external / info.doc_count : undefined;
  const isDown = order === 'down';
  // The list from which the browser sorts is read by id.
  const descending = isDown && by === '';
  const range = prefix === '' ? {} : descending
    ? { startkey: JSON.stringify(`${prefix}\ufff0`), endkey: JSON.stringify(prefix) }
    : { startkey: JSON.stringify(prefix), endkey: JSON.stringify(`${prefix}\ufff0`) };
  // The position in the address applies to the initial list only.
  const list = `${prefix} ${order} ${by} ${keys} ${partition.name}`;
  const first = useRef(list);
  if (first.current !== list) startId.current = '';
  const start = startId.current === '' ? {} : { from: { key: JSON.stringify(startId.current) } };
  const limit = withDocs ? pageSize(average, FIRST_BYTES, FIRST_ROWS_MAX) : 100;
  const listRequest = { path: `${partition.path}/_all_docs`, params: { include_docs: withDocs || undefined, keys: keys || undefined, conflicts: withDocs || undefined }, descending, ...range, ...start, limit };
  const byId = usePager(info === undefined ? undefined : keys === '' ? listRequest : { ...listRequest, startkey: undefined, endkey: undefined, from: undefined, limit: 100_000 }, [partition.path, withDocs, prefix, descending, keys, info === undefined]);
  const sorted = useSorted({ db, info, partition, byId, by, descending: isDown, prefix, hasKeys: keys !== '' });
  const { paged } = sorted;
  // The offset of the server counts from the first document of the database.
  const page = useRowPages(prefix === '' && by === '' ? paged : { ...paged, offset: undefined }, list);
  const { shown } = page;
  useCommands([
    { text: 'New document', where: 'Action', icon: 'plus', act: () => go(['db', db, 'new']) },
    { text: 'Show as table', where: 'Action', icon: 'table', act: () => setDisplay('table') },
    { text: 'Show as JSON', where: 'Action', icon: 'code', act: () => setDisplay('json') },
    { text: 'Show revisions only', where: 'Action', icon: 'history', act: () => setDisplay('meta') },
    { text: 'Documents by keys', where: 'Action', icon: 'filter', act: () => setDialog('keys') },
  ], [db]);
  const [chosen, setChosen] = useChosenColumns();
  const names = useCommon(display, paged);
  const top = (index: number) => {
    const at = page.isPage ? 0 : index;
    const id = at === 0 && shown.atFirst ? undefined : shown.rows[at]?.id;
    if (keys === '' && by === '') setParams({ from: id }, true);
  };
  const toggle = (row: Row) => {
    const rev = row.id === undefined ? undefined : revOf(row);
    if (row.id === undefined || rev === undefined) return;
    const next = new Map(picked);
    if (!next.delete(row.id)) next.set(row.id, rev);
    setPicked(next);
  };
  const sort = by === '' && !isDown ? undefined : { name: by, descending: isDown };
  const sortBy = (next: Sort | undefined) => setParams({ by: next?.name, order: next?.descending ? 'down' : undefined, from: undefined });
  const request = sorted.request ? { method: 'POST', path: sorted.request.path, body: JSON.stringify({ ...sorted.request.query, limit: 50 }) } : { method: 'GET', path: `${partition.path}/_all_docs` + query({ include_docs: withDocs || undefined, limit: 50, ...range, keys: keys || undefined, descending: descending || undefined }) };
  return (
    <div class="docs-area fills">
      <div class="toolbar">
        <Segments label="Show documents as" value={display} options={[['table', 'Table'], ['json', 'JSON'], ['meta', 'Metadata']]} onValue={setDisplay} />
        <PartitionField db={db} info={info} />
        <div class="grow"><Field label="Documents whose ids begin with" hideLabel type="search" value={typed} onValue={(value) => setParams({ q: value, from: undefined }, true)} placeholder="Ids that begin with …" mono /></div>
        <Segments label={by === '' ? 'Order of ids' : `Order of ${by}`} value={order} onValue={setOrder} options={ORDERS} />
        <Button icon="filter" onClick={() => setDialog('keys')}>{keys === '' ? 'Keys' : 'Keys (set)'}</Button>
        {display === 'table' && <Button icon="table" onClick={() => setDialog('columns')}>Columns</Button>}
        <Export name={partition.name === '' ? db : `${db}-${partition.name}`} source={() => (keys === '' ? rowSource(`${partition.path}/_all_docs`, { include_docs: true, descending: descending || undefined, ...range }, ({ doc }) => doc) : answerSource(`${partition.path}/_all_docs${query({ include_docs: true, keys })}`, ({ doc }) => doc))} />
        <CopyAs request={request} />
      </div>
      {picked.size > 0 && (
        <div class="notice"><div>{plural(picked.size, 'document')} selected</div>
          <Button onClick={() => setPicked(new Map(shown.rows.flatMap((row) => (row.id !== undefined && revOf(row) !== undefined ? [[row.id, revOf(row) ?? ''] as [string, string]] : []))))}>Select all {number(shown.rows.length)} {page.isPage ? 'of this page' : 'loaded'}</Button>
          <Button onClick={() => setPicked(new Map())}>Select none</Button>
          <Button onClick={() => setDialog('edit')}>Edit</Button>
          <Button kind="danger" icon="trash" onClick={() => setDialog('delete')}>Delete</Button>
        </div>
      )}
      <Problem error={paged.error} again={paged.again} />
      {shown.rows.length === 0 && !paged.error && (sorted.kind === 'none' ? <NoIndex db={db} by={by} info={info} isPartition={partition.name !== ''} onDone={sorted.again} />
        : paged.loading || sorted.kind === 'loading' || info === undefined ? <Skeleton lines={10} /> : <NoDocuments db={db} typed={typed} keys={keys} by={by} />)}
      {shown.rows.length > 0 && <List key={page.key} db={db} display={display as Display} paged={shown} picked={picked} toggle={toggle} top={top} chosen={chosen} sort={sort} onSort={sortBy} />}
      <div class="list-foot">
        <p role="status">{by !== '' ? orderNote(sorted, by, isDown) : loadedNote(paged, prefix, page.isPage)}{paged.loading && sorted.kind !== 'none' ? ' · loading …' : ''}</p>
        <span>{paged.ms === undefined ? '' : `answered in ${millis(paged.ms)}`}</span>
        {page.controls}
      </div>
      {dialog === 'columns' && <ColumnChoice names={names} shown={chosen.length > 0 ? chosen : names.slice(0, COLUMNS_MAX)} onChoose={setChosen} onClose={() => setDialog('')} />}
      {dialog === 'keys' && <Keys keys={keys} onKeys={(value) => setParams({ keys: value, do: undefined, from: undefined })} onClose={() => setDialog('')} />}
      {dialog === 'edit' && picked.size > 0 && <EditMany db={db} chosen={{ ids: [...picked.keys()] }} names={names} onClose={() => { setPicked(new Map()); setDialog(''); }} onDone={() => { paged.again(); again(); }} />}
      {dialog === 'delete' && picked.size > 0 && <DeleteMany db={db} docs={[...picked].map(([id, rev]) => ({ id, rev, text: paged.rows.find((row) => row.id === id)?.doc }))} onClose={() => setDialog('')} onDone={() => { setPicked(new Map()); paged.again(); again(); }} />}
    </div>
  );
}

function loadedNote({ total, offset, rows }: Paged, prefix: string, isPage: boolean): string {
  const part = offset === undefined || rows.length === 0 || prefix !== '' || isPage ? '' : `, ${number(offset + 1)} to ${number(offset + rows.length)} loaded`;
  return total === undefined ? '' : plural(total, 'document') + part;
}

function NoDocuments({ db, typed, keys, by }: { db: string; typed: string; keys: string; by: string }) {
  if (typed !== '' || keys !== '') return <Empty icon="search" title="No documents match">{typed === '' ? 'None of the keys is the id of a document.' : `No id begins with “${typed}”.`} Use a query to find documents by their content.</Empty>;
  if (by !== '') return <Empty icon="table" title={`No document has ${by}`} action={<LinkButton to={['db', db]}>Sort by id</LinkButton>}>The index that sorts the list contains only documents with this member.</Empty>;
  return (
    <Empty icon="file" title="No documents yet" action={<><LinkButton to={['db', db, 'new']} kind="primary" icon="plus">New document</LinkButton><LinkButton to={['db', db, 'upload']} icon="upload">Upload JSON or CSV</LinkButton></>}>
      Create a document, upload a file, or replicate another database to this one.
    </Empty>
  );
}

export function revOf(row: Row): string | undefined {
  const value = parse(row.value);
  return stringOf(row.value, member(value, 'rev'));
}

interface ListProps {
  db: string;
  display: Display;
  paged: Paged;
  picked: Map<string, string>;
  toggle: (row: Row) => void;
  top: (index: number) => void;
  /** The chosen columns; empty for the most common members. */
  chosen: string[];
  sort: Sort | undefined;
  onSort: (sort: Sort | undefined) => void;
}

/** Returns the text of a cell. Strings have no quotes, and long values are cut. */
export function cell(text: string | undefined): string {
  if (text === undefined) return '';
  const short = text.length > 300 ? `${text.slice(0, 300)}…` : text;
  if (!text.startsWith('"') || text.length > 300) return short;
  return plain(text, parse(text));
}

/** Returns the member names of the loaded documents, the most common first. */
function useCommon(display: string, paged: ListProps['paged']): string[] {
  return useMemo(() => (display === 'table' ? columns(paged.rows.slice(0, 100).map(membersOf), CHOICES_MAX) : []), [display, paged.rows.length > 0 ? paged.rows[0] : undefined, paged.rows.length > 100]);
}

function List({ db, display, paged, picked, toggle, top, chosen, sort, onSort }: ListProps) {
  const common = useCommon(display, paged);
  const names = display !== 'table' ? [] : chosen.length > 0 ? chosen : common.slice(0, COLUMNS_MAX);
  const [widths, resize] = useWidths(db);
  const [edited, setEdited] = useState<CellAt>();
  const edit = (row: Row | undefined, name: string, step: number | undefined) => {
    const next = step === undefined ? undefined : names[names.indexOf(name) + step];
    setEdited(row?.id === undefined || row.doc === undefined || next === undefined ? undefined : { id: row.id, name: next });
  };
  const narrow = innerWidth < 720;
  const template = display === 'table'
    ? `40px ${narrow ? 150 : 230}px ${names.map((name) => (widths[name] === undefined ? 'minmax(120px, 1fr)' : `${widths[name]}px`)).join(' ')} ${names.length === 0 ? '1fr' : ''}`
    : '40px minmax(180px, 1fr) minmax(260px, 1fr)';
  const open = (index: number) => {
    const id = paged.rows[index]?.id;
    if (id !== undefined) go(['db', db, 'doc', id]);
  };
  const list = { label: 'Documents', count: paged.rows.length, shift: paged.shift, order: JSON.stringify(sort ?? ID_ORDER), onNear: paged.near, onTop: top, onOpen: open, onPick: (index: number) => { const row = paged.rows[index]; if (row) toggle(row); } };
  const pick = (row: Row) => <input type="checkbox" tabIndex={-1} aria-label={`Select ${row.id ?? ''}`} checked={row.id !== undefined && picked.has(row.id)} disabled={row.id === undefined || revOf(row) === undefined} onChange={() => toggle(row)} />;
  if (display === 'json') {
    return <Virtual {...list} height={CARD_HEIGHT} row={(index, active) => {
      const row = paged.rows[index];
      return row && <Card db={db} row={row} active={active} pick={pick(row)} />;
    }} />;
  }
  const totalWidth = display === 'table' ? 40 + (narrow ? 150 : 230) + Math.max(120, names.reduce((sum, name) => sum + (widths[name] ?? 120), 0)) : 480;
  const style = { gridTemplateColumns: template, minWidth: `${totalWidth}px` };
  const head = <div class="grid-row head" style={style}><span /><span><SortButton name="" text="id" sort={sort ?? ID_ORDER} onSort={onSort} /></span>{display === 'meta' ? <span>rev</span> : names.map((name) => <span key={name}><SortButton name={name} sort={sort} onSort={onSort} /><ResizeHandle name={name} width={widths[name]} onWidth={(width) => resize(name, width)} /></span>)}</div>;
  return <Virtual {...list} onEdit={(index) => edit(paged.rows[index], names[0] ?? '', 0)} height={ROW_HEIGHT} head={head} row={(index, active) => {
    const row = paged.rows[index];
    if (!row) return null;
    return (
      <div class={`grid-row body ${active ? 'active' : ''} ${row.id !== undefined && picked.has(row.id) ? 'on' : ''}`} style={style}>
        <span class="pick">{pick(row)}</span>
        <IdLink db={db} row={row} />
        {display === 'meta' ? <span class="mono">{row.error ?? revOf(row)}</span> : names.map((name) => <Cell key={name} db={db} row={row} name={name} text={cell(membersOf(row).get(name))} isEdited={edited?.id === row.id && edited?.name === name} onEdit={(step) => edit(row, name, step)} onSaved={paged.put} />)}
      </div>
    );
  }} />;
}

function IdLink({ db, row }: { db: string; row: Row }) {
  if (row.id === undefined) return <span class="quiet-text">{row.key} {row.error}</span>;
  return <Link to={['db', db, 'doc', row.id]} tabIndex={-1} title={row.id} class="mono">{row.id}</Link>;
}

/** Returns the first lines of a document. Large documents are cut instead of formatted. */
function preview(doc: string): string {
  if (doc.length > 20_000) return doc.slice(0, 1200);
  return format(doc).split('\n').slice(0, 8).join('\n');
}

function Card({ db, row, active, pick }: { db: string; row: Row; active: boolean; pick: preact.ComponentChild }) {
  return (
    <div class={`doc-card ${active ? 'active' : ''}`}>
      <div class="row">{pick}<IdLink db={db} row={row} /></div>
      <pre>{row.doc === undefined ? (row.error ?? 'deleted') : preview(row.doc)}</pre>
    </div>
  );
}

function Keys({ keys, onKeys, onClose }: { keys: string; onKeys: (keys: string) => void; onClose: () => void }) {
  const [text, setText] = useState(() => (keys === '' ? '' : list(keys).join('\n')));
  const submit = (event: Event) => {
    event.preventDefault();
    const ids = text.split('\n').map((line) => line.trim()).filter((line) => line !== '');
    onKeys(ids.length === 0 ? '' : JSON.stringify(ids));
  };
  return (
    <Dialog title="Documents by keys" onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <TextArea label="Ids, one per line" value={text} onValue={setText} rows={8} mono hint="The documents are listed in this order." />
        <div class="actions end"><Button onClick={() => onKeys('')}>All documents</Button><Button kind="primary" type="submit">Show</Button></div>
      </form>
    </Dialog>
  );
}

function list(keys: string): string[] {
  try {
    const node = parse(keys);
    return node.children?.map((child) => (child.kind === 'string' ? plain(keys, child) : raw(keys, child))) ?? [];
  } catch {
    return [];
  }
}
