/** The documents of a database by id, as a table of their members, as JSON, or as a list of revisions. */
import { useMemo, useRef, useState } from 'preact/hooks';
import { answerSource, rowSource } from '../api/export.ts';
import { query } from '../api/paths.ts';
import { type Row, columns, fields } from '../json/rows.ts';
import { format, member, parse, plain, raw, stringOf } from '../json/text.ts';
import { go, setParams, useDialog, useParam } from '../router.ts';
import { Button, Dialog, Empty, Field, Link, LinkButton, ORDERS, Problem, Segments, Skeleton, TextArea } from '../ui/kit.tsx';
import { ColumnChoice, ResizeHandle, useChosenColumns, useWidths } from '../ui/columns.tsx';
import { Export } from '../ui/export.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { usePager } from '../ui/pager.ts';
import { useCommands } from '../ui/palette.tsx';
import { useSettled } from '../ui/use.ts';
import { Virtual } from '../ui/virtual.tsx';
import { millis, number, plural } from '../ui/words.ts';
import { Cell, type CellAt } from './cell.tsx';
import { DeleteMany } from './bulk.tsx';
import { EditMany } from './bulk-edit.tsx';
import type { DbPage } from './db.tsx';
import { PartitionField, usePartition } from './partition.tsx';

type Display = 'table' | 'json' | 'meta';
const COLUMNS_MAX = 7;
const CHOICES_MAX = 200;
const CARD_HEIGHT = 172;
const ROW_HEIGHT = 34;
/** Target size of the first page if it includes documents. */
const FIRST_BYTES = 200_000;

export function Documents({ db, info, again }: DbPage) {
  const [display, setDisplay] = useParam('view', 'table');
  const [typed] = useParam('q');
  const [order, setOrder] = useParam('order', 'up');
  const [keys] = useParam('keys');
  const [from] = useParam('from');
  const [dialog, setDialog] = useDialog();
  const prefix = useSettled(typed, 150);
  const partition = usePartition(db, info);
  const [picked, setPicked] = useState(new Map<string, string>());
  const startId = useRef(from);
  const withDocs = display !== 'meta';
  const average = info && info.doc_count > 0 ? info.sizes.external / info.doc_count : undefined;
  const descending = order === 'down';
  const range = prefix === '' ? {} : descending
    ? { startkey: JSON.stringify(`${prefix}\ufff0`), endkey: JSON.stringify(prefix) }
    : { startkey: JSON.stringify(prefix), endkey: JSON.stringify(`${prefix}\ufff0`) };
  // The position in the address applies to the initial list only.
  const list = `${prefix} ${order} ${keys} ${partition.name}`;
  const first = useRef(list);
  if (first.current !== list) startId.current = '';
  const start = startId.current === '' ? {} : { from: { key: JSON.stringify(startId.current) } };
  const limit = withDocs ? Math.max(10, Math.min(50, Math.round(FIRST_BYTES / (average ?? 4000)))) : 100;
  const listRequest = { path: `${partition.path}/_all_docs`, params: { include_docs: withDocs || undefined, keys: keys || undefined, conflicts: withDocs || undefined }, descending, ...range, ...start, limit };
  const paged = usePager(info === undefined ? undefined : keys === '' ? listRequest : { ...listRequest, startkey: undefined, endkey: undefined, from: undefined, limit: 100_000 }, [partition.path, withDocs, prefix, order, keys, info === undefined]);
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
    const id = index === 0 && paged.atFirst ? undefined : paged.rows[index]?.id;
    if (keys === '') setParams({ from: id }, true);
  };
  const toggle = (row: Row) => {
    const rev = row.id === undefined ? undefined : revOf(row);
    if (row.id === undefined || rev === undefined) return;
    const next = new Map(picked);
    if (!next.delete(row.id)) next.set(row.id, rev);
    setPicked(next);
  };
  const request = { method: 'GET', path: `${partition.path}/_all_docs` + query({ include_docs: withDocs || undefined, limit: 50, ...range, keys: keys || undefined, descending: descending || undefined }) };
  return (
    <div class="docs-area fills">
      <div class="toolbar">
        <Segments label="Show documents as" value={display} options={[['table', 'Table'], ['json', 'JSON'], ['meta', 'Metadata']]} onValue={setDisplay} />
        <PartitionField db={db} info={info} />
        <div class="grow"><Field label="Documents whose ids begin with" hideLabel type="search" value={typed} onValue={(value) => setParams({ q: value, from: undefined }, true)} placeholder="Ids that begin with …" mono /></div>
        <Segments label="Order of ids" value={order} onValue={setOrder} options={ORDERS} />
        <Button icon="filter" onClick={() => setDialog('keys')}>{keys === '' ? 'Keys' : 'Keys (set)'}</Button>
        {display === 'table' && <Button icon="table" onClick={() => setDialog('columns')}>Columns</Button>}
        <Export name={partition.name === '' ? db : `${db}-${partition.name}`} source={() => (keys === '' ? rowSource(`${partition.path}/_all_docs`, { include_docs: true, descending: descending || undefined, ...range }, ({ doc }) => doc) : answerSource(`${partition.path}/_all_docs${query({ include_docs: true, keys })}`, ({ doc }) => doc))} />
        <CopyAs request={request} />
      </div>
      {picked.size > 0 && (
        <div class="notice"><div>{plural(picked.size, 'document')} selected</div>
          <Button onClick={() => setPicked(new Map(paged.rows.flatMap((row) => (row.id !== undefined && revOf(row) !== undefined ? [[row.id, revOf(row) ?? ''] as [string, string]] : []))))}>Select all {number(paged.rows.length)} loaded</Button>
          <Button onClick={() => setPicked(new Map())}>Select none</Button>
          <Button onClick={() => setDialog('edit')}>Edit</Button>
          <Button kind="danger" icon="trash" onClick={() => setDialog('delete')}>Delete</Button>
        </div>
      )}
      <Problem error={paged.error} again={paged.again} />
      {paged.rows.length === 0 && !paged.error && (paged.loading || info === undefined ? <Skeleton lines={10} /> : <NoDocuments db={db} typed={typed} keys={keys} />)}
      {paged.rows.length > 0 && <List db={db} display={display as Display} paged={paged} picked={picked} toggle={toggle} top={top} chosen={chosen} />}
      <p class="list-foot" role="status">
        <span>{paged.total === undefined ? '' : plural(paged.total, 'document')}{paged.offset === undefined || paged.rows.length === 0 || prefix !== '' ? '' : `, ${number(paged.offset + 1)} to ${number(paged.offset + paged.rows.length)} loaded`}{paged.loading ? ' · loading …' : ''}</span>
        <span>{paged.ms === undefined ? '' : `answered in ${millis(paged.ms)}`}</span>
      </p>
      {dialog === 'columns' && <ColumnChoice names={names} shown={chosen.length > 0 ? chosen : names.slice(0, COLUMNS_MAX)} onChoose={setChosen} onClose={() => setDialog('')} />}
      {dialog === 'keys' && <Keys keys={keys} onKeys={(value) => setParams({ keys: value, do: undefined, from: undefined })} onClose={() => setDialog('')} />}
      {dialog === 'edit' && picked.size > 0 && <EditMany db={db} chosen={{ ids: [...picked.keys()] }} names={names} onClose={() => { setPicked(new Map()); setDialog(''); }} onDone={() => { paged.again(); again(); }} />}
      {dialog === 'delete' && picked.size > 0 && <DeleteMany db={db} docs={[...picked].map(([id, rev]) => ({ id, rev, text: paged.rows.find((row) => row.id === id)?.doc }))} onClose={() => setDialog('')} onDone={() => { setPicked(new Map()); paged.again(); again(); }} />}
    </div>
  );
}

function NoDocuments({ db, typed, keys }: { db: string; typed: string; keys: string }) {
  if (typed !== '' || keys !== '') return <Empty icon="search" title="No documents match">{typed === '' ? 'None of the keys is the id of a document.' : `No id begins with “${typed}”.`} Use a query to find documents by their content.</Empty>;
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
  paged: ReturnType<typeof usePager>;
  picked: Map<string, string>;
  toggle: (row: Row) => void;
  top: (index: number) => void;
  /** The chosen columns; empty for the most common members. */
  chosen: string[];
}

/** Cache of the parsed members of rows. */
const parsedMembers = new WeakMap<Row, Map<string, string>>();

export function membersOf(row: Row): Map<string, string> {
  let found = parsedMembers.get(row);
  if (!found) {
    found = row.doc === undefined ? new Map<string, string>() : fields(row.doc);
    parsedMembers.set(row, found);
  }
  return found;
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

function List({ db, display, paged, picked, toggle, top, chosen }: ListProps) {
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
  const list = { label: 'Documents', count: paged.rows.length, shift: paged.shift, onNear: paged.near, onTop: top, onOpen: open, onPick: (index: number) => { const row = paged.rows[index]; if (row) toggle(row); } };
  const pick = (row: Row) => <input type="checkbox" tabIndex={-1} aria-label={`Select ${row.id ?? ''}`} checked={row.id !== undefined && picked.has(row.id)} disabled={row.id === undefined || revOf(row) === undefined} onChange={() => toggle(row)} />;
  if (display === 'json') {
    return <Virtual {...list} height={CARD_HEIGHT} row={(index, active) => {
      const row = paged.rows[index];
      return row && <Card db={db} row={row} active={active} pick={pick(row)} />;
    }} />;
  }
  const totalWidth = display === 'table' ? 40 + (narrow ? 150 : 230) + Math.max(120, names.reduce((sum, name) => sum + (widths[name] ?? 120), 0)) : 480;
  const style = { gridTemplateColumns: template, minWidth: `${totalWidth}px` };
  const head = <div class="grid-row head" style={style}><span /><span>id</span>{display === 'meta' ? <span>rev</span> : names.map((name) => <span key={name} title={name}>{name}<ResizeHandle name={name} width={widths[name]} onWidth={(width) => resize(name, width)} /></span>)}</div>;
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
