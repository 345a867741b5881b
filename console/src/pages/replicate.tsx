/** A new replication. */
import { useState } from 'preact/hooks';
import { address, enc, get, send } from '../api/http.ts';
import { world } from '../api/session.ts';
import { jsonProblems } from '../json/problems.ts';
import { compact } from '../json/text.ts';
import { go, useParam } from '../router.ts';
import { Editor } from '../ui/editor.tsx';
import { Button, Card, Check, Field, PageHead, Problem, Segments, Select, TextArea, say } from '../ui/kit.tsx';
import { useAction, useAsk, useTitle } from '../ui/use.ts';

interface End {
  kind: 'here' | 'elsewhere';
  name: string;
  url: string;
  auth: 'none' | 'basic' | 'bearer';
  user: string;
  password: string;
}

const END: End = { kind: 'here', name: '', url: '', auth: 'none', user: '', password: '' };

/** What stands for an end in the document of a replication. */
export function describeEnd(end: End, here: (name: string) => string): string | { url: string; auth?: object; headers?: object } {
  const url = end.kind === 'here' ? here(end.name) : end.url;
  if (end.auth === 'basic') return { url, auth: { basic: { username: end.user, password: end.password } } };
  if (end.auth === 'bearer') return { url, headers: { Authorization: `Bearer ${end.password}` } };
  return url;
}

export function NewReplication() {
  useTitle('New replication');
  const [from] = useParam('source');
  const [into] = useParam('target');
  const me = world.value.session.name;
  const [source, setSource] = useState<End>({ ...END, name: from, ...(me === null ? {} : { auth: 'basic', user: me }) });
  const [target, setTarget] = useState<End>({ ...END, name: into, ...(me === null ? {} : { auth: 'basic', user: me }) });
  const [continuous, setContinuous] = useState(false);
  const [createTarget, setCreateTarget] = useState(false);
  const [stored, setStored] = useState('stored');
  const [id, setId] = useState('');
  const [filter, setFilter] = useState('none');
  const [ids, setIds] = useState('');
  const [selector, setSelector] = useState('{\n  "type": "order"\n}');
  const [named, setNamed] = useState('');
  const { busy, error, run } = useAction();
  const here = (name: string) => address(enc(name));
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const body: Record<string, unknown> = {
        source: describeEnd(source, here), target: describeEnd(target, here),
        ...(continuous ? { continuous } : {}), ...(createTarget ? { create_target: true } : {}),
        ...(filter === 'ids' ? { doc_ids: ids.split('\n').map((line) => line.trim()).filter((line) => line !== '') } : {}),
        ...(filter === 'function' ? { filter: named } : {}),
      };
      // The selector keeps its numbers as they are written.
      const text = filter === 'selector' ? `{"selector":${compact(selector)},${JSON.stringify(body).slice(1)}` : JSON.stringify(body);
      if (stored === 'stored') {
        const path = id === '' ? '_replicator' : `_replicator/${enc(id)}`;
        await send(id === '' ? 'POST' : 'PUT', path, { body: text });
        say('The replication is stored and begins.');
        go(['replication']);
      } else {
        const outcome = JSON.parse((await send('POST', '_replicate', { body: text })).text) as { history?: { docs_written: number }[]; no_changes?: boolean };
        say(outcome.no_changes ? 'There was nothing to copy.' : outcome.history ? `${outcome.history[0]?.docs_written ?? 0} documents copied.` : 'The replication runs.');
        go(['replication'], { show: 'jobs' });
      }
    });
  };
  return (
    <form class="stack" onSubmit={submit}>
      <PageHead title="New replication" />
      <div class="grid-2">
        <EndCard title="From" end={source} onEnd={setSource} />
        <EndCard title="To" end={target} onEnd={setTarget} create={<Check label="Create it if it is missing" checked={createTarget} onChecked={setCreateTarget} />} />
      </div>
      <div class="grid-2">
        <Card title="Which documents">
          <Select label="Filter" value={filter} onValue={setFilter} options={[['none', 'all'], ['selector', 'that a selector matches'], ['ids', 'with these ids'], ['function', 'that a filter function takes']]} />
          {filter === 'ids' && <TextArea label="Ids, one a line" value={ids} onValue={setIds} mono />}
          {filter === 'selector' && <Editor label="Selector" language="json" value={selector} onValue={setSelector} problems={jsonProblems} lines={[5, 14]} />}
          {filter === 'function' && <Field label="Filter function" value={named} onValue={setNamed} mono placeholder="ddoc/filter" required />}
        </Card>
        <Card title="How">
          <Check label="Continuous" checked={continuous} onChecked={setContinuous} hint="Goes on with every change, until it is deleted." />
          <Segments label="Keep it" value={stored} onValue={setStored} options={[['stored', 'Stored'], ['once', 'Only now']]} />
          <p class="note">{stored === 'stored' ? 'A document in _replicator: it goes on after a restart. Passwords in it are readable for administrators only.' : 'It ends with the server.'}</p>
          {stored === 'stored' && <Field label="Id of its document" value={id} onValue={setId} mono hint="Empty: the server makes one." />}
        </Card>
      </div>
      <Problem error={error} />
      <div class="actions"><Button kind="primary" type="submit" busy={busy} icon="replicate">Replicate</Button></div>
    </form>
  );
}

function EndCard({ title, end, onEnd, create }: { title: string; end: End; onEnd: (end: End) => void; create?: preact.ComponentChild }) {
  const [busy, setBusy] = useState(false);
  const [found, setFound] = useState('');
  const names = useAsk((signal) => get<string[]>('_all_dbs?limit=200', signal).catch(() => []), []);
  const set = (change: Partial<End>) => onEnd({ ...end, ...change });
  const look = () => {
    setBusy(true);
    const path = end.kind === 'here' ? enc(end.name) : undefined;
    const ask = path === undefined ? Promise.reject(new Error('Only databases of this server can be looked at from here.')) : get<{ doc_count: number }>(path).then(({ doc_count }) => `It is there, with ${doc_count} documents.`);
    ask.then(setFound, (problem: Error) => setFound(problem.message)).finally(() => setBusy(false));
  };
  const list = `names-${title}`;
  return (
    <Card title={title}>
      <Segments label={`${title}: where`} value={end.kind} onValue={(kind) => { setFound(''); set({ kind: kind as End['kind'] }); }} options={[['here', 'This server'], ['elsewhere', 'Another server']]} />
      {end.kind === 'here'
        ? <div class="row end"><div class="grow"><Field label="Database" value={end.name} onValue={(name) => set({ name })} list={list} required mono /></div><Button busy={busy} onClick={look}>Look</Button><datalist id={list}>{names.data?.map((name) => <option key={name} value={name} />)}</datalist></div>
        : <Field label="URL of the database" type="url" value={end.url} onValue={(url) => set({ url })} placeholder="https://couch.example.com/db" required mono />}
      {found !== '' && <p class="note" role="status">{found}</p>}
      {create}
      <Select label="Credentials" value={end.auth} onValue={(auth) => set({ auth: auth as End['auth'] })} options={[['none', 'none'], ['basic', 'name and password'], ['bearer', 'token (JWT)']]} />
      {end.auth === 'basic' && <div class="grid-2"><Field label={`User (${title.toLowerCase()})`} value={end.user} onValue={(user) => set({ user })} autocomplete="off" /><Field label={`Password (${title.toLowerCase()})`} type="password" value={end.password} onValue={(password) => set({ password })} autocomplete="new-password" /></div>}
      {end.auth === 'bearer' && <Field label={`Token (${title.toLowerCase()})`} type="password" value={end.password} onValue={(password) => set({ password })} autocomplete="off" />}
    </Card>
  );
}

