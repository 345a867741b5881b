/** The databases: a page of them at a time by name, with their sizes. */
import { useState } from 'preact/hooks';
import { createDatabase } from '../api/config.ts';
import { ApiError, get, send } from '../api/http.ts';
import { path, query } from '../api/paths.ts';
import { isAdmin, isParty, world } from '../api/session.ts';
import { go, setParams, useParam } from '../router.ts';
import { Button, Card, Check, Confirm, Dialog, Empty, Field, Link, LinkButton, Notice, PageHead, Problem, Skeleton, Tag, say } from '../ui/kit.tsx';
import { CopyAs, Menu } from '../ui/menu.tsx';
import { useCommands } from '../ui/palette.tsx';
import { useAction, useAsk, useSettled, useTitle } from '../ui/use.ts';
import { bytes, number } from '../ui/words.ts';

interface Info {
  doc_count: number;
  doc_del_count: number;
  sizes: { file: number; external: number; active: number };
  props?: { partitioned?: boolean };
  compact_running?: boolean;
}

interface Entry {
  name: string;
  info: Info | undefined;
}

const PAGE = 50;

/** Databases whose names begin so, from a name on. Servers before 3.2 answer POST only, older ones nothing. */
async function list(prefix: string, from: string, signal: AbortSignal): Promise<Entry[]> {
  const start = from > prefix ? from : prefix;
  const range = query({ limit: PAGE + 1, startkey: start && JSON.stringify(start), endkey: prefix && JSON.stringify(`${prefix}\ufff0`) });
  try {
    const found = await get<{ key: string; info?: Info }[]>(`_dbs_info${range}`, signal);
    return found.map(({ key, info }) => ({ name: key, info }));
  } catch (error) {
    if (!(error instanceof ApiError) || ![400, 404, 405].includes(error.status)) throw error;
    const names = await get<string[]>(`_all_dbs${range}`, signal);
    return await Promise.all(names.map(async (name) => ({ name, info: await get<Info>(path`${name}`, signal).catch(() => undefined) })));
  }
}

export function Databases() {
  useTitle('Databases');
  const [typed] = useParam('q');
  const [from] = useParam('from');
  const [dialog, setDialog] = useParam('do');
  const [doomed, setDoomed] = useState<string>();
  const prefix = useSettled(typed, 150);
  const asked = useAsk((signal) => list(prefix, from, signal), [prefix, from, world.value.session.name], 0, 'shown');
  useCommands([{ text: 'Create a database', where: 'Action', icon: 'plus', act: () => setDialog('create') }], []);
  const refused = asked.error instanceof ApiError && [401, 403].includes(asked.error.status);
  const shown = asked.data?.slice(0, PAGE);
  const next = asked.data?.[PAGE]?.name;
  return (
    <>
      <PageHead title="Databases">
        <CopyAs request={{ method: 'GET', path: `_dbs_info${query({ limit: PAGE, startkey: prefix && JSON.stringify(prefix) })}` }} />
        {isAdmin() && <Button kind="primary" icon="plus" onClick={() => setDialog('create')}>Create database</Button>}
      </PageHead>
      {isParty() && <Notice kind="warn">There is no administrator yet: everybody who reaches this server may do everything. <Link to={['setup']}>Set it up</Link></Notice>}
      {refused ? <OpenByName /> : (
        <>
          <div class="toolbar"><div class="grow"><Field label="Databases whose names begin with" hideLabel type="search" value={typed} onValue={(value) => setParams({ q: value, from: undefined }, true)} placeholder="Names that begin with …" /></div></div>
          <Problem error={asked.error} again={asked.again} />
          <Card flush>
            {shown === undefined && !asked.error && <Skeleton />}
            {shown?.length === 0 && <Empty icon="database" title={typed === '' ? 'No databases yet' : `No name begins with “${typed}”`}
              action={isAdmin() && <Button kind="primary" icon="plus" onClick={() => setDialog('create')}>Create database</Button>}>A database holds documents and the views of them.</Empty>}
            {shown && shown.length > 0 && <Table entries={shown} onDelete={setDoomed} />}
          </Card>
          <div class="actions end">
            {from !== '' && <LinkButton to={['databases']} query={{ q: typed }}>From the first</LinkButton>}
            {next !== undefined && <LinkButton to={['databases']} query={{ q: typed, from: next }} icon="right">Next {PAGE}</LinkButton>}
          </div>
        </>
      )}
      {dialog === 'create' && <Create onClose={() => setDialog('')} />}
      {doomed !== undefined && <DeleteDatabase name={doomed} onClose={() => setDoomed(undefined)} onDone={asked.again} />}
    </>
  );
}

function Table({ entries, onDelete }: { entries: Entry[]; onDelete: (name: string) => void }) {
  return (
    <div class="table-wrap">
      <table>
        <caption class="unseen">Databases</caption>
        <thead><tr><th scope="col">Name</th><th scope="col" class="num">Documents</th><th scope="col" class="num hide-small">Deleted</th><th scope="col" class="num hide-small">Data</th><th scope="col" class="num">On disk</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
        <tbody>
          {entries.map(({ name, info }) => (
            <tr key={name}>
              <td><span class="row"><Link to={['db', name]}>{name}</Link>{info?.props?.partitioned && <Tag>partitioned</Tag>}{info?.compact_running && <Tag kind="accent">compacting</Tag>}</span></td>
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
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** For users who may not see the list. */
function OpenByName() {
  const [name, setName] = useState('');
  return (
    <Card title="Open a database" note="The list of databases is for administrators. You can open those that you are a member of by name.">
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
  const { busy, error, run } = useAction();
  const wrong = name !== '' && !NAME.test(name) && !name.startsWith('_') ? 'Lower-case letters, digits and _ $ ( ) + - /, beginning with a letter.' : undefined;
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      await createDatabase(name, partitioned);
      say(`${name} is created.`);
      go(['db', name]);
    });
  };
  return (
    <Dialog title="Create a database" onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <Field label="Name" value={name} onValue={setName} required autofocus mono autocomplete="off" problem={wrong} hint="It cannot be changed later." />
        <Check label="Partitioned" checked={partitioned} onChecked={setPartitioned} hint="Ids are partition:id, and queries within a partition read that one only." />
        <Problem error={error} />
        <div class="actions end"><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit" busy={busy} disabled={name === '' || wrong !== undefined}>Create</Button></div>
      </form>
    </Dialog>
  );
}

export function DeleteDatabase({ name, onClose, onDone }: { name: string; onClose: () => void; onDone: () => void }) {
  const info = useAsk((signal) => get<Info>(path`${name}`, signal), [name]);
  const act = async () => {
    await send('DELETE', path`${name}`);
    say(`${name} is deleted.`);
    onDone();
  };
  return (
    <Confirm title={`Delete ${name}?`} verb="Delete for ever" typed={name} act={act} onClose={onClose}>
      <p>All {info.data ? number(info.data.doc_count) : ''} documents, the views and their indexes go with it. This cannot be undone.</p>
    </Confirm>
  );
}
