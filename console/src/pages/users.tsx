import { useState } from 'preact/hooks';
import { actAs } from '../api/acting.ts';
import { people } from '../api/choices.ts';
import { createDatabase, readConfig, setConfig, unsetConfig } from '../api/config.ts';
import { rowSource } from '../api/export.ts';
import { ApiError, creating, get, send } from '../api/http.ts';
import { query, userPath } from '../api/paths.ts';
import { server } from '../api/servers.ts';
import { sessionState } from '../api/session.ts';
import { withMembers } from '../json/text.ts';
import { setParams, useDialog, useParam } from '../router.ts';
import { Toggles } from '../ui/choice.tsx';
import { Restored, useForm } from '../ui/draft.tsx';
import { Export } from '../ui/export.tsx';
import { Button, Card, Confirm, Dialog, Empty, Field, Link, PageHead, Problem, Skeleton, Tag, showToast } from '../ui/kit.tsx';
import { CopyAs, Menu } from '../ui/menu.tsx';
import { useCommands } from '../ui/palette.tsx';
import { useAction, useRequest, useSettled } from '../ui/use.ts';
import { Access } from './access.tsx';

interface User {
  _id: string;
  _rev: string;
  name: string;
  roles: string[];
  type: string;
}

const PREFIX = 'org.couchdb.user:';
const PAGE = 50;
/** Members of a user that an export omits. */
const SECRETS = { password_sha: undefined, password_scheme: undefined, pbkdf2_prf: undefined, derived_key: undefined, salt: undefined, iterations: undefined };

export function Users() {
  const [typed] = useParam('q');
  const [from] = useParam('from');
  const [dialog, setDialog] = useDialog();
  const [edited, setEdited] = useState<User>();
  const [examined, setExamined] = useState<User>();
  const [deleting, setDeleting] = useState<User>();
  const prefix = useSettled(typed, 150);
  const result = useRequest(async (signal) => {
    const start = PREFIX + (from > prefix ? from : prefix);
    const found = await get<{ rows: { doc?: User }[] }>(`_users/_all_docs${query({ include_docs: true, limit: PAGE + 1, startkey: JSON.stringify(start), endkey: JSON.stringify(`${PREFIX}${prefix}\ufff0`) })}`, signal);
    return found.rows.flatMap(({ doc }) => (doc ? [doc] : []));
  }, [prefix, from], 0, 'shown');
  const { error, run } = useAction();
  useCommands([{ text: 'Create a user', where: 'Action', icon: 'plus', act: () => setDialog('create') }], []);
  const canAct = server === '' && sessionState.value.welcome?.isSettee === true;
  const isMissing = result.error instanceof ApiError && result.error.status === 404;
  const shown = result.data?.slice(0, PAGE);
  return (
    <>
      <PageHead title="Users">
        {shown && shown.length > 0 && <Export name="users" source={() => rowSource('_users/_all_docs', { include_docs: true, startkey: JSON.stringify(PREFIX + prefix), endkey: JSON.stringify(`${PREFIX}${prefix}\ufff0`) }, ({ doc }) => doc && withMembers(doc, SECRETS))} />}
        <CopyAs request={{ method: 'GET', path: '_users/_all_docs?include_docs=true' }} />
        {!isMissing && <Button kind="primary" icon="plus" onClick={() => setDialog('create')}>Create user</Button>}
      </PageHead>
      <Problem error={error ?? (isMissing ? undefined : result.error)} again={result.again} />
      {isMissing ? (
        <Card><Empty icon="users" title="The database _users does not exist" action={<Button kind="primary" onClick={() => void run(async () => { await createDatabase('_users'); result.again(); })}>Create _users</Button>}>Users other than administrators are documents in _users.</Empty></Card>
      ) : (
        <>
          <div class="toolbar"><div class="grow"><Field label="Users whose names begin with" hideLabel type="search" value={typed} onValue={(q) => setParams({ q, from: undefined }, true)} placeholder="Names that begin with …" /></div></div>
          <Card flush>
            {!shown && !result.error && <Skeleton />}
            {shown?.length === 0 && <Empty icon="users" title={typed === '' ? 'No users yet' : `No name begins with “${typed}”`}>Users log in with a password. Databases grant access to users and to their roles.</Empty>}
            {shown && shown.length > 0 && (
              <div class="table-wrap"><table>
                <caption class="unseen">Users</caption>
                <thead><tr><th scope="col">Name</th><th scope="col">Roles</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
                <tbody>{shown.map((user) => (
                  <tr key={user._id}>
                    <td><Link to={['db', '_users', 'doc', user._id]}>{user.name}</Link></td>
                    <td><span class="chips">{user.roles.map((role) => <Tag key={role}>{role}</Tag>)}</span></td>
                    <td class="tight"><Menu label={`Actions on ${user.name}`} icon="down" items={[{ text: 'Roles and password', icon: 'user', act: () => setEdited(user) }, { text: 'Effective permissions', icon: 'lock', act: () => setExamined(user) }, ...(canAct ? [{ text: 'View as this user', icon: 'external' as const, act: () => actAs(user.name) }] : []), { text: 'Delete', icon: 'trash', act: () => setDeleting(user) }]} /></td>
                  </tr>
                ))}</tbody>
              </table></div>
            )}
          </Card>
          {result.data && result.data.length > PAGE && <div class="actions end"><Button onClick={() => setParams({ from: result.data?.[PAGE]?.name })}>Next {PAGE}</Button></div>}
        </>
      )}
      <Admins />
      {dialog === 'create' && <Edit onClose={() => setDialog('')} onDone={result.again} />}
      {edited && <Edit user={edited} onClose={() => setEdited(undefined)} onDone={result.again} />}
      {examined && <Access user={examined} onClose={() => setExamined(undefined)} />}
      {deleting && <Confirm title="Delete this user?" verb="Delete" onClose={() => setDeleting(undefined)} act={async () => { await send('DELETE', `${userPath(deleting.name)}${query({ rev: deleting._rev })}`); result.again(); }}><p>{deleting.name} can no longer log in. Open sessions end with their next request.</p></Confirm>}
    </>
  );
}

function Edit({ user, onClose, onDone }: { user?: User; onClose: () => void; onDone: () => void }) {
  const form = useForm(['user', user?._id ?? ''], { name: user?.name ?? '', password: '', roles: (user?.roles ?? []).join(', ') }, ['password']);
  const { name, password, roles } = form.value;
  const list = roles.split(',').map((role) => role.trim()).filter((role) => role !== '');
  const known = useRequest(people, []);
  const { busy, error, run } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      if (user) {
        const { text } = await send('GET', userPath(user.name));
        const changes = password === '' ? {} : { password: JSON.stringify(password), derived_key: undefined, salt: undefined, password_sha: undefined };
        await send('PUT', userPath(user.name), { body: withMembers(text, { roles: JSON.stringify(list), ...changes }) });
      } else await creating(`The user ${name}`, () => send('PUT', userPath(name), { body: JSON.stringify({ _id: PREFIX + name, name, password, roles: list, type: 'user' }) }));
      form.discard();
      showToast(`${name} is saved.`);
      onDone();
      onClose();
    });
  };
  return (
    <Dialog title={user ? user.name : 'Create a user'} onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <Restored found={form.restored} onDiscard={form.discard}>Passwords are not kept.</Restored>
        {!user && <Field label="Name" value={name} onValue={(typed) => form.set({ name: typed })} required autofocus autocomplete="off" />}
        <Field label={user ? 'New password' : 'Password'} type="password" value={password} onValue={(typed) => form.set({ password: typed })} autocomplete="new-password" required={!user} hint={user ? 'Leave it empty to keep the password.' : undefined} />
        <Field label="Roles" value={roles} onValue={(typed) => form.set({ roles: typed })} hint="Separated by commas." />
        <Toggles label="Suggested by other users" chosen={list} choices={known.data?.roles ?? []} onToggle={(role) => form.set({ roles: (list.includes(role) ? list.filter((each) => each !== role) : [...list, role]).join(', ') })} />
        <Problem error={error} />
        <div class="actions end"><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit" busy={busy}>Save</Button></div>
      </form>
    </Dialog>
  );
}

function Admins() {
  const result = useRequest((signal) => readConfig(signal).then((sections) => Object.keys(sections['admins'] ?? {})), []);
  const [adding, setAdding] = useState(false);
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const [deleting, setDeleting] = useState<string>();
  const { busy, error, run } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      await setConfig('admins', name, password);
      showToast(`${name} is an administrator.`);
      setAdding(false);
      setName('');
      setPassword('');
      result.again();
    });
  };
  const me = sessionState.value.session.name;
  return (
    <Card flush title="Server administrators" note="Administrators have all permissions. They are stored in the configuration, not in _users." actions={<Button icon="plus" onClick={() => setAdding(true)}>Add</Button>}>
      {result.data?.length === 0 && <p class="inner note">The server has no administrator: every client has all permissions.</p>}
      {result.data && result.data.length > 0 && <ul class="key-list">{result.data.map((admin) => <li key={admin} class="row spread" style={{ padding: '8px 16px' }}><span class="row"><strong>{admin}</strong>{admin === me && <Tag kind="accent">you</Tag>}</span><Button kind="quiet" icon="trash" label={`Remove ${admin}`} disabled={admin === me} onClick={() => setDeleting(admin)} /></li>)}</ul>}
      {adding && <Dialog title="Add an administrator" onClose={() => setAdding(false)}><form class="stack" onSubmit={submit}>
        <Field label="Name" value={name} onValue={setName} required autofocus autocomplete="off" /><Field label="Password" type="password" value={password} onValue={setPassword} required autocomplete="new-password" />
        <Problem error={error} /><div class="actions end"><Button onClick={() => setAdding(false)}>Cancel</Button><Button kind="primary" type="submit" busy={busy}>Add</Button></div>
      </form></Dialog>}
      {deleting !== undefined && <Confirm title="Remove this administrator?" verb="Remove" onClose={() => setDeleting(undefined)} act={async () => { await unsetConfig('admins', deleting); result.again(); }}><p>{deleting}</p></Confirm>}
    </Card>
  );
}
