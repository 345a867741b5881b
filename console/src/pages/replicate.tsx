import { useState } from 'preact/hooks';
import { filters } from '../api/choices.ts';
import { creating, get, send } from '../api/http.ts';
import { address, docPath, path } from '../api/paths.ts';
import { sessionState } from '../api/session.ts';
import { jsonProblems } from '../json/problems.ts';
import { compact } from '../json/text.ts';
import { go, useParam } from '../router.ts';
import { ChoiceField } from '../ui/choice.tsx';
import { Restored, useForm } from '../ui/draft.tsx';
import { Editor } from '../ui/editor.tsx';
import { Button, Card, Check, Field, PageHead, Problem, Segments, Select, TextArea, showToast } from '../ui/kit.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { plural } from '../ui/words.ts';

export interface Endpoint {
  kind: 'here' | 'elsewhere';
  name: string;
  url: string;
  auth: 'none' | 'basic' | 'bearer';
  user: string;
}

const EMPTY_ENDPOINT: Endpoint = { kind: 'here', name: '', url: '', auth: 'none', user: '' };

/**
 * Returns the source or target for the document of a replication. `here` returns the URL of a database of this server and must be given
 * if the server does not accept names. Throws if the password is missing, because failed logins may lock out the account.
 */
export function describeEndpoint(end: Endpoint, password: string, here?: (name: string) => string): string | { url: string; auth?: object; headers?: object } {
  if (end.kind === 'here' && !here) return end.name;
  const url = end.kind === 'here' && here ? here(end.name) : end.url;
  if (end.auth === 'none') return url;
  if (password === '') throw new Error(end.auth === 'basic' ? `The password of ${end.user || 'the user'} is missing.` : 'The token is missing.');
  if (end.auth === 'bearer') return { url, headers: { Authorization: `Bearer ${password}` } };
  if (end.user === '') throw new Error('The name of the user is missing.');
  return { url, auth: { basic: { username: end.user, password } } };
}

/** Splits credentials from a URL. Returns undefined if the URL has none. */
export function splitUrl(typed: string): { url: string; user: string; password: string } | undefined {
  const found = /^(https?:\/\/)([^/?#@:]+)(?::([^/?#@]*))?@(.+)$/i.exec(typed);
  if (!found) return undefined;
  const decode = (text: string) => { try { return decodeURIComponent(text); } catch { return text; } };
  return { url: `${found[1] ?? ''}${found[4] ?? ''}`, user: decode(found[2] ?? ''), password: decode(found[3] ?? '') };
}

/** True if the server accepts names of its databases and replicates them with the permissions of the requesting user. */
const acceptsNames = () => sessionState.value.welcome?.isSettee === true;

export function NewReplication() {
  const [from] = useParam('source');
  const [into] = useParam('target');
  const me = sessionState.value.session.name;
  const own = acceptsNames() || me === null ? {} : { auth: 'basic' as const, user: me };
  const form = useForm(['replication', from, into], {
    source: { ...EMPTY_ENDPOINT, name: from, ...own }, target: { ...EMPTY_ENDPOINT, name: into, ...own }, sourcePassword: '', targetPassword: '',
    continuous: false, createTarget: false, stored: 'stored', id: '', filter: 'none', ids: '', selector: '{\n  "type": "order"\n}', named: '',
  }, ['sourcePassword', 'targetPassword']);
  const { source, target, continuous, createTarget, stored, id, filter, ids, selector, named } = form.value;
  const known = useRequest((signal) => (filter === 'function' && source.kind === 'here' && source.name !== '' ? filters(source.name, signal) : Promise.resolve([])), [filter, source.kind, source.name]);
  const { busy, error, run } = useAction();
  const here = acceptsNames() ? undefined : (name: string) => address(path`${name}`);
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const body: Record<string, unknown> = {
        source: describeEndpoint(source, form.value.sourcePassword, here), target: describeEndpoint(target, form.value.targetPassword, here),
        ...(continuous ? { continuous } : {}), ...(createTarget ? { create_target: true } : {}),
        ...(filter === 'ids' ? { doc_ids: ids.split('\n').map((line) => line.trim()).filter((line) => line !== '') } : {}),
        ...(filter === 'function' ? { filter: named } : {}),
      };
      // The selector is inserted as text, so that its numbers are not rounded.
      const text = filter === 'selector' ? `{"selector":${compact(selector)},${JSON.stringify(body).slice(1)}` : JSON.stringify(body);
      if (stored === 'stored') {
        await (id === '' ? send('POST', '_replicator', { body: text }) : creating(`The replication ${id}`, () => send('PUT', docPath('_replicator', id), { body: text })));
        form.discard();
        showToast('The replication is stored and will start.');
        go(['replication']);
      } else {
        const outcome = JSON.parse((await send('POST', '_replicate', { body: text })).text) as { history?: { docs_written: number }[]; no_changes?: boolean };
        form.discard();
        showToast(outcome.no_changes ? 'The target already has all changes.' : outcome.history ? `${plural(outcome.history[0]?.docs_written ?? 0, 'document')} copied.` : 'The replication was started.');
        go(['replication'], { show: 'jobs' });
      }
    });
  };
  return (
    <form class="stack" onSubmit={submit}>
      <PageHead title="New replication" />
      <Restored found={form.restored} onDiscard={form.discard}>Passwords are not kept.</Restored>
      <div class="grid-2 even">
        <EndpointCard title="From" end={source} password={form.value.sourcePassword} onEndpoint={(change, sourcePassword) => form.set({ source: { ...source, ...change }, ...(sourcePassword === undefined ? {} : { sourcePassword }) })} />
        <EndpointCard title="To" end={target} password={form.value.targetPassword} onEndpoint={(change, targetPassword) => form.set({ target: { ...target, ...change }, ...(targetPassword === undefined ? {} : { targetPassword }) })} create={<Check label="Create the target if it is missing" checked={createTarget} onChecked={(on) => form.set({ createTarget: on })} />} />
      </div>
      <div class="grid-2 even">
        <Card title="Documents">
          <Select label="Filter" value={filter} onValue={(filter) => form.set({ filter })} options={[['none', 'none: all documents'], ['selector', 'selector'], ['ids', 'list of ids'], ['function', 'filter function']]} />
          {filter === 'ids' && <TextArea label="Ids, one per line" value={ids} onValue={(ids) => form.set({ ids })} mono />}
          {filter === 'selector' && <Editor label="Selector" language="json" value={selector} onValue={(selector) => form.set({ selector })} problems={jsonProblems} lines={[5, 14]} />}
          {filter === 'function' && <ChoiceField label="Filter function" value={named} onValue={(named) => form.set({ named })} choices={known.data ?? []} mono placeholder="ddoc/filter" required />}
        </Card>
        <Card title="Options">
          <Check label="Continuous" checked={continuous} onChecked={(continuous) => form.set({ continuous })} hint="Copies later changes until the replication is deleted." />
          <Segments label="Kind of replication" value={stored} onValue={(stored) => form.set({ stored })} options={[['stored', 'Stored'], ['once', 'Transient']]} />
          <p class="note">{stored === 'stored' ? 'Stored as a document in _replicator. The replication continues after a restart. Only administrators can read its passwords.' : 'The replication ends when the server stops.'}</p>
          {stored === 'stored' && <Field label="Document id" value={id} onValue={(id) => form.set({ id })} mono hint="Leave it empty to let the server generate one." />}
        </Card>
      </div>
      <Problem error={error} />
      <div class="actions"><Button kind="primary" type="submit" busy={busy} icon="replicate">Replicate</Button></div>
    </form>
  );
}

function EndpointCard({ title, end, password, onEndpoint, create }: { title: string; end: Endpoint; password: string; onEndpoint: (change: Partial<Endpoint>, password?: string) => void; create?: preact.ComponentChild }) {
  const [busy, setBusy] = useState(false);
  const [found, setFound] = useState('');
  const names = useRequest((signal) => get<string[]>('_all_dbs?limit=200', signal).catch(() => []), []);
  const checkDatabase = () => {
    setBusy(true);
    get<{ doc_count: number }>(path`${end.name}`).then(({ doc_count }) => `It has ${plural(doc_count, 'document')}.`).then(setFound, (problem: Error) => setFound(problem.message)).finally(() => setBusy(false));
  };
  const setUrl = (typed: string) => {
    const split = splitUrl(typed);
    if (split) onEndpoint({ url: split.url, auth: 'basic', user: split.user }, split.password);
    else onEndpoint({ url: typed });
  };
  const list = `names-${title}`;
  const needsLogin = end.kind === 'elsewhere' || !acceptsNames();
  return (
    <Card title={title}>
      <Segments label={`${title}: where`} value={end.kind} onValue={(kind) => { setFound(''); onEndpoint({ kind: kind as Endpoint['kind'] }); }} options={[['here', 'This server'], ['elsewhere', 'Another server']]} />
      {end.kind === 'here'
        ? <div class="row end"><div class="grow"><Field label="Database" value={end.name} onValue={(name) => onEndpoint({ name })} list={list} required mono /></div><Button busy={busy} disabled={end.name === ''} onClick={checkDatabase}>Check</Button><datalist id={list}>{names.data?.map((name) => <option key={name} value={name} />)}</datalist></div>
        : <Field label="URL of the database" type="url" value={end.url} onValue={setUrl} placeholder="https://couch.example.com/db" required mono />}
      {found !== '' && <p class="note" role="status">{found}</p>}
      {create}
      {!needsLogin && <p class="note">The replication runs with your permissions and needs no password.</p>}
      {needsLogin && <Select label="Credentials" value={end.auth} onValue={(auth) => onEndpoint({ auth: auth as Endpoint['auth'] })} options={[['none', 'none'], ['basic', 'name and password'], ['bearer', 'token (JWT)']]} />}
      {needsLogin && end.auth === 'basic' && <div class="grid-2 even"><Field label={`User (${title.toLowerCase()})`} value={end.user} onValue={(user) => onEndpoint({ user })} autocomplete="off" required /><Field label={`Password (${title.toLowerCase()})`} type="password" value={password} onValue={(typed) => onEndpoint({}, typed)} autocomplete="new-password" required /></div>}
      {needsLogin && end.auth === 'bearer' && <Field label={`Token (${title.toLowerCase()})`} type="password" value={password} onValue={(typed) => onEndpoint({}, typed)} autocomplete="off" required />}
    </Card>
  );
}
