/** The list of databases with their sizes, which can be sorted by each column. The table grows while it is scrolled. */
import { useEffect, useState } from 'preact/hooks';
import { createDatabase } from '../api/config.ts';
import { NAMES_MAX, databaseNames, readFigures, sortDatabases, type Info, type SortKey } from '../api/databases.ts';
import { ApiError, creating, get, send } from '../api/http.ts';
import { path, query } from '../api/paths.ts';
import { isAdmin, isParty, sessionState } from '../api/session.ts';
import { go, setParams, useDialog, useParam } from '../router.ts';
import { databaseSource } from '../api/export.ts';
import { Export } from '../ui/export.tsx';
import { Icon } from '../ui/icons.tsx';
import { Button, Card, Check, Confirm, Dialog, Empty, Field, Link, Notice, PageHead, Problem, Skeleton, Tag, showToast } from '../ui/kit.tsx';
import { CopyAs, Menu } from '../ui/menu.tsx';
import { useCommands } from '../ui/palette.tsx';
import { Sentinel } from '../ui/sentinel.tsx';
import { useAction, useRequest, useSettled } from '../ui/use.ts';
import { bytes, number, plural } from '../ui/words.ts';

/** Number of rows that are added when the end of the table becomes visible. */
const PAGE = 100;

/** Reads the figures of databases in batches. They are read again when `version` changes. */
function useFigures(names: string[], version: unknown): { figures: ReadonlyMap<string, Info | undefined>; missing: number; error: Error | undefined } {
  const [state, set] = useState({ version, figures: new Map<string, Info | undefined>() });
  const [error, setError] = useState<Error>();
  const figures = state.version === version ? state.figures : new Map<string, Info | undefined>();
  const missing = names.filter((name) => !figures.has(name));
  const batch = missing.slice(0, PAGE);
  useEffect(() => {
    if (batch.length === 0) return;
    const control = new AbortController();
    setError(undefined);
    readFigures(batch, control.signal, (found) => {
      if (!control.signal.aborted) set({ version, figures: new Map([...figures, ...found, ...batch.filter((name) => !found.has(name)).map((name) => [name, undefined] as const)]) });
    }).catch((problem: unknown) => { if (!control.signal.aborted) setError(problem as Error); });
    return () => control.abort();
  }, [batch.join('\n'), version]);
  return { figures, missing: missing.length, error };
}

export function Databases() {
  const [typed] = useParam('q');
  const [sort] = useParam('sort', 'name');
  const [order] = useParam('order', 'up');
  const [dialog, setDialog] = useDialog();
  const [deleting, setDeleting] = useState<string>();
  const [count, setCount] = useState(PAGE);
  const prefix = useSettled(typed, 150);
  const result = useRequest((signal) => databaseNames(prefix, signal), [prefix, sessionState.value.session.name], 0, 'shown');
  useEffect(() => setCount(PAGE), [prefix, sort, order]);
  useCommands([{ text: 'Create a database', where: 'Action', icon: 'plus', act: () => setDialog('create') }], []);
  const all = result.data?.slice(0, NAMES_MAX) ?? [];
  const key = sort as SortKey;
  const shown = (figures: ReadonlyMap<string, Info | undefined>) => sortDatabases(all, figures, key, order === 'down').slice(0, count);
  // Sorting by a figure requires the figures of all databases.
  const { figures, missing, error } = useFigures(key === 'name' ? shown(new Map()) : all, result.data);
  const rows = shown(figures);
  const refused = result.error instanceof ApiError && [401, 403].includes(result.error.status);
  const reading = key !== 'name' && missing > 0 ? ` · ${number(all.length - missing)} read for the sort` : '';
  const total = result.data && `${result.data.length > NAMES_MAX ? 'more than ' : ''}${plural(all.length, 'database')}${typed === '' ? '' : ' match'}${reading}`;
  return (
    <>
      <PageHead title="Databases" note={refused ? undefined : <span role="status">{total ?? '…'}</span>}>
        {all.length > 0 && <Export name="databases" source={() => databaseSource(all)} />}
        <CopyAs request={{ method: 'GET', path: `_dbs_info${query({ limit: PAGE, startkey: prefix && JSON.stringify(prefix) })}` }} />
        {isAdmin() && <Button kind="primary" icon="plus" onClick={() => setDialog('create')}>Create database</Button>}
      </PageHead>
      {isParty() && <Notice kind="warn">This server has no administrator: every client that reaches it has all permissions. <Link to={['setup']}>Set it up</Link></Notice>}
      {refused ? <OpenByName /> : (
        <>
          <div class="toolbar"><div class="grow"><Field label="Databases whose names begin with" hideLabel type="search" value={typed} onValue={(value) => setParams({ q: value }, true)} placeholder="Names that begin with …" /></div></div>
          <Problem error={result.error ?? error} again={result.again} />
          <Card flush>
            {result.data === undefined && !result.error && <Skeleton />}
            {result.data?.length === 0 && <Empty icon="database" title={typed === '' ? 'No databases yet' : `No name begins with “${typed}”`}
              action={isAdmin() && <Button kind="primary" icon="plus" onClick={() => setDialog('create')}>Create database</Button>}>A database holds documents, their views and indexes.</Empty>}
            {rows.length > 0 && <Table names={rows} figures={figures} sort={key} order={order} onDelete={setDeleting} />}
          </Card>
          {rows.length < all.length && <Sentinel key={rows.length} onSeen={() => setCount((old) => old + PAGE)} />}
        </>
      )}
      {dialog === 'create' && <Create onClose={() => setDialog('')} />}
      {deleting !== undefined && <DeleteDatabase name={deleting} onClose={() => setDeleting(undefined)} onDone={result.again} />}
    </>
  );
}

const COLUMNS: [SortKey, string, string][] = [['name', 'Name', ''], ['docs', 'Documents', 'num'], ['deleted', 'Deleted', 'num hide-small'], ['data', 'Data', 'num hide-small'], ['disk', 'On disk', 'num']];

/** Head of a sortable column. The first click on a figure sorts in descending order. */
function SortHead({ name, text, kind, sort, order }: { name: SortKey; text: string; kind: string; sort: SortKey; order: string }) {
  const isOn = sort === name;
  const first = name === 'name' ? 'up' : 'down';
  const next = isOn ? (order === 'up' ? 'down' : 'up') : first;
  const choose = () => setParams({ sort: name === 'name' ? undefined : name, order: next === 'up' ? undefined : next });
  return (
    <th scope="col" class={kind} aria-sort={isOn ? (order === 'up' ? 'ascending' : 'descending') : 'none'}>
      <button type="button" class="sort" onClick={choose}>{text}{isOn && <Icon name={order === 'up' ? 'up' : 'down'} size={12} />}</button>
    </th>
  );
}

function Table({ names, figures, sort, order, onDelete }: { names: string[]; figures: ReadonlyMap<string, Info | undefined>; sort: SortKey; order: string; onDelete: (name: string) => void }) {
  return (
    <div class="table-wrap">
      <table>
        <caption class="unseen">Databases</caption>
        <thead><tr>{COLUMNS.map(([name, text, kind]) => <SortHead key={name} name={name} text={text} kind={kind} sort={sort} order={order} />)}<th scope="col"><span class="unseen">Actions</span></th></tr></thead>
        <tbody>{names.map((name) => <Line key={name} name={name} info={figures.get(name)} onDelete={onDelete} />)}</tbody>
      </table>
    </div>
  );
}

function Line({ name, info, onDelete }: { name: string; info: Info | undefined; onDelete: (name: string) => void }) {
  return (
    <tr>
      <td><span class="row"><Link to={['db', name]}>{name}</Link>{info?.props?.partitioned && <Tag>partitioned</Tag>}{info?.access && <Tag>access per document</Tag>}{info?.compact_running && <Tag kind="accent">compacting</Tag>}</span></td>
      <td class="num">{number(info?.doc_count)}</td><td class="num hide-small">{number(info?.doc_del_count)}</td>
      <td class="num hide-small">{bytes(info?.sizes.external)}</td><td class="num">{bytes(info?.sizes.file)}</td>
      <td class="tight right">{isAdmin() && <Menu label={`Actions on ${name}`} icon="down" items={[
        { text: 'Query', icon: 'filter', act: () => go(['db', name, 'query']) },
        { text: 'Changes', icon: 'history', act: () => go(['db', name, 'changes']) },
        { text: 'Replicate', icon: 'replicate', act: () => go(['replication', 'new'], { source: name }) },
        { text: 'Settings', icon: 'gear', act: () => go(['db', name, 'settings']) },
        { text: 'Delete', icon: 'trash', act: () => onDelete(name) },
      ]} />}</td>
    </tr>
  );
}

function OpenByName() {
  const [name, setName] = useState('');
  return (
    <Card title="Open a database" note="Only administrators can list databases. Enter the name of a database of which you are a member.">
      <form class="row end" onSubmit={(event) => { event.preventDefault(); go(['db', name]); }}>
        <div class="grow"><Field label="Name" value={name} onValue={setName} required mono /></div>
        <Button kind="primary" type="submit">Open</Button>
      </form>
    </Card>
  );
}

const NAME = /^[a-z][a-z0-9_$()+/-]*$/;

function Create({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('');
  const [partitioned, setPartitioned] = useState(false);
  const [access, setAccess] = useState(false);
  const { busy, error, run } = useAction();
  const wrong = name !== '' && !NAME.test(name) && !name.startsWith('_') ? 'Lower-case letters, digits and _ $ ( ) + - /, beginning with a letter.' : undefined;
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      await creating(`The database ${name}`, () => createDatabase(name, { partitioned, access }));
      showToast(`${name} is created.`);
      go(['db', name]);
    });
  };
  return (
    <Dialog title="Create a database" onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <Field label="Name" value={name} onValue={setName} required autofocus mono autocomplete="off" problem={wrong} hint="It cannot be changed later." />
        <Check label="Partitioned" checked={partitioned} onChecked={setPartitioned} hint="Ids have the form partition:id. A query of one partition reads that partition only." />
        {sessionState.value.welcome?.isSettee && <Check label="Access per document" checked={access} onChecked={setAccess} hint="Each document names the users and roles that may read and edit it. It cannot be changed later." />}
        <Problem error={error} />
        <div class="actions end"><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit" busy={busy} disabled={name === '' || wrong !== undefined}>Create</Button></div>
      </form>
    </Dialog>
  );
}

export function DeleteDatabase({ name, onClose, onDone }: { name: string; onClose: () => void; onDone: () => void }) {
  const info = useRequest((signal) => get<Info>(path`${name}`, signal), [name]);
  const act = async () => {
    await send('DELETE', path`${name}`);
    showToast(`${name} is deleted.`);
    onDone();
  };
  return (
    <Confirm title={`Delete ${name}?`} verb="Delete permanently" typed={name} act={act} onClose={onClose}>
      <p>This deletes {info.data ? plural(info.data.doc_count, 'document') : 'all documents'}, the views and their indexes. It cannot be undone.</p>
    </Confirm>
  );
}
