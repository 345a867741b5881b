/** All servers side by side: their state and their databases. The list is stored in the content security policy of the console. */
import { useState } from 'preact/hooks';
import { CORS_HEADERS, CORS_METHODS, setConfig } from '../api/config.ts';
import { pagePolicy } from '../api/http.ts';
import { UNREAD, totals, useServers, type ServerState } from '../api/overview.ts';
import { authorization, nameOf, policyWith, removeLogin, server, serversOf, urlOf } from '../api/servers.ts';
import { isAdmin, loginTo } from '../api/session.ts';
import { goTo, hrefOf } from '../router.ts';
import { Button, Card, Confirm, Dialog, Empty, Field, Json, PageHead, Problem, Skeleton, Tag } from '../ui/kit.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { bytes, millis, number, plural } from '../ui/words.ts';
import { LoginForm } from './login.tsx';
import { SideBySide } from './side-by-side.tsx';

export function Servers() {
  const result = useRequest(() => pagePolicy().then(serversOf), []);
  if (server !== '') return <Empty icon="server" title="The list belongs to the server of the console" action={<Button kind="primary" onClick={() => goTo('', ['servers'])}>Servers of {location.host}</Button>} />;
  return (
    <>
      {result.data ? <Overview others={result.data} /> : <><PageHead title="Servers" /><Problem error={result.error} again={result.again} />{!result.error && <Skeleton lines={4} />}</>}
      <div class="grid-2">
        {isAdmin() && <AddServer />}
        <Card title="Settings of the other server" note="Its CORS settings must permit the origin of this page. They need not permit credentials, because the console sends the password in a header.">
          <Json label="CORS settings of the other server" text={`[chttpd]\nenable_cors = true\n\n[cors]\norigins = ${location.origin}\nheaders = ${CORS_HEADERS}\nmethods = ${CORS_METHODS}`} />
        </Card>
      </div>
    </>
  );
}

const titleOf = (name: string) => name || location.host;

function Overview({ others }: { others: string[] }) {
  const names = ['', ...others];
  const { states, again } = useServers(names);
  const [dialog, setDialog] = useState<{ kind: 'login' | 'remove'; name: string }>();
  const close = () => setDialog(undefined);
  const all = names.map((name) => ({ on: name, title: titleOf(name), state: states.get(name) ?? UNREAD }));
  const down = all.filter(({ state }) => state.status === 'down').length;
  const compared = all.filter(({ state }) => state.names !== undefined);
  return (
    <>
      <PageHead title="Servers" note={<span role="status">{plural(names.length, 'server')}{down > 0 ? `, ${number(down)} ${down === 1 ? 'does' : 'do'} not answer` : ''}</span>}><Button icon="refresh" onClick={again}>Refresh</Button></PageHead>
      <Card flush>
        <div class="table-wrap" tabIndex={0} role="region" aria-label="State of the servers"><table>
          <caption class="unseen">State of the servers</caption>
          <thead><tr><th scope="col">Server</th><th scope="col">State</th><th scope="col" class="num hide-small">Databases</th><th scope="col" class="num hide-small">Documents</th><th scope="col" class="num hide-small">On disk</th><th scope="col" class="num hide-narrow">Tasks</th><th scope="col" class="num hide-narrow">Answer</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
          <tbody>{all.map(({ on, title, state }) => <Line key={on} on={on} title={title} state={state} onLogin={() => setDialog({ kind: 'login', name: on })} onLogout={() => { removeLogin(on); again(); }} onRemove={() => setDialog({ kind: 'remove', name: on })} />)}</tbody>
        </table></div>
        {others.length === 0 && <p class="inner note">No other servers. {isAdmin() ? 'Add one below: it appears in this table and as a tab at the top of the window.' : 'An administrator of this server adds them.'}</p>}
      </Card>
      {compared.length > 1 && <SideBySide columns={compared} />}
      {dialog?.kind === 'login' && <Dialog title={`Log in to ${dialog.name}`} onClose={close}>
        <p class="note">The password is kept in this tab, until it is closed or you log out.</p>
        <LoginForm act={(user, password) => loginTo(dialog.name, user, password)} onDone={() => { close(); again(); }} />
      </Dialog>}
      {dialog?.kind === 'remove' && <Confirm title="Remove this server?" verb="Remove" onClose={close} act={() => store((list) => list.filter((each) => each !== dialog.name))}>
        <p>{urlOf(dialog.name)} is removed from the list of this console. The server itself is not changed.</p>
      </Confirm>}
    </>
  );
}

const STATUS: Record<ServerState['status'], ['plain' | 'good' | 'warn' | 'bad', string]> = {
  reading: ['plain', 'waiting'], up: ['good', 'up'], closed: ['warn', 'no login'], down: ['bad', 'no answer'],
};

interface LineProps {
  on: string;
  title: string;
  state: ServerState;
  onLogin: () => void;
  onLogout: () => void;
  onRemove: () => void;
}

function Line({ on, title, state, onLogin, onLogout, onRemove }: LineProps) {
  const [kind, text] = STATUS[state.status];
  const sums = totals(state);
  // Sums of a part of the databases are lower bounds.
  const bound = sums.isComplete ? '' : '≥ ';
  const hasSums = state.names !== undefined;
  const about = [on === '' ? 'this console' : '', state.product, state.user === undefined ? '' : `as ${state.user}`].filter((part) => part !== '').join(', ');
  const figures = `${state.isCut ? '≥ ' : ''}${plural(state.names?.length ?? 0, 'database')}, ${bound}${bytes(sums.bytes)}`;
  return (
    <tr>
      <td class="key"><span class="two-lines"><a href={hrefOf(on)}>{title}</a>{about !== '' && <small>{about}</small>}{hasSums && <small class="only-small">{figures}</small>}</span></td>
      <td><Tag kind={kind}>{text}</Tag></td>
      <td class="num hide-small">{state.names === undefined ? '–' : `${state.isCut ? '≥ ' : ''}${number(state.names.length)}`}</td>
      <td class="num hide-small">{hasSums ? bound + number(sums.docs) : '–'}</td><td class="num hide-small">{hasSums ? bound + bytes(sums.bytes) : '–'}</td>
      <td class="num hide-narrow">{number(state.tasks)}</td><td class="num hide-narrow">{state.ms === undefined ? '–' : millis(state.ms)}</td>
      <td class="tight right"><span class="row end-row">
        {on !== '' && state.status === 'closed' && <Button icon="lock" onClick={onLogin}>Log in</Button>}
        {on !== '' && state.status === 'up' && 'Authorization' in authorization(on) && <Button kind="quiet" icon="lock" label={`Log out of ${on}`} onClick={onLogout} />}
        {on !== '' && isAdmin() && <Button kind="quiet" icon="trash" label={`Remove ${on}`} onClick={onRemove} />}
      </span></td>
    </tr>
  );
}

function AddServer() {
  const [url, setUrl] = useState('');
  const { busy, error, run } = useAction();
  const name = nameOf(url);
  const problem = url === '' || name !== undefined ? undefined : 'Enter a URL such as https://couch.example.com:6984/, without a user name.';
  const add = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      if (name !== undefined) await store((names) => [...names.filter((each) => each !== name), name]);
    });
  };
  return (
    <Card title="Add a server" note="For all users of this console. The policy of its pages permits requests to the listed servers only ([csp] utils_header_value).">
      <form class="stack" onSubmit={add}>
        <Field label="URL" type="url" value={url} onValue={setUrl} placeholder="https://couch.example.com:6984/" problem={problem} required />
        <Problem error={error} />
        <div class="actions"><Button kind="primary" type="submit" busy={busy} disabled={name === undefined}>Add</Button></div>
      </form>
    </Card>
  );
}

/** Stores the list in the policy and reloads the page, because a policy applies from the next load. */
async function store(change: (names: string[]) => string[]): Promise<void> {
  const policy = await pagePolicy();
  await setConfig('csp', 'utils_header_value', policyWith(policy, change(serversOf(policy))));
  location.reload();
}
