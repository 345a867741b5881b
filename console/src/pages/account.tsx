import { useState } from 'preact/hooks';
import { setConfig } from '../api/config.ts';
import { send } from '../api/http.ts';
import { userPath } from '../api/paths.ts';
import { isAdmin, login, sessionState } from '../api/session.ts';
import { withMembers } from '../json/text.ts';
import { Button, Card, Empty, Field, LinkButton, PageHead, Problem, Tag, showToast } from '../ui/kit.tsx';
import { useSignal } from '../ui/signal.ts';
import { useAction, useRequest } from '../ui/use.ts';

export function Account() {
  const { session } = useSignal(sessionState);
  const [password, setPassword] = useState('');
  const [again, setAgain] = useState('');
  const { busy, error, run } = useAction();
  // Users may be unable to read their own document, depending on the security object of _users.
  const own = useRequest((signal) => (session.name === null || isAdmin() ? Promise.resolve(true) : send('GET', userPath(session.name), { signal }).then(() => true, () => false)), [session.name]);
  if (session.name === null) return <Empty icon="user" title="You are not logged in" action={<LinkButton to={['login']} kind="primary">Log in</LinkButton>} />;
  const name = session.name;
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const path = userPath(name);
      if (isAdmin()) await setConfig('admins', name, password);
      else {
        const { text } = await send('GET', path);
        await send('PUT', path, { body: withMembers(text, { password: JSON.stringify(password), derived_key: undefined, salt: undefined, password_sha: undefined }) });
      }
      await login(name, password);
      setPassword('');
      setAgain('');
      showToast('The password was changed.');
    });
  };
  return (
    <div class="stack narrow">
      <PageHead title={name} note={session.roles.length === 0 ? 'No roles.' : <span class="chips">{session.roles.map((role) => <Tag key={role}>{role}</Tag>)}</span>} />
      <Card title="Change the password">
        {own.data === false ? <p>On this server an administrator changes passwords.</p> : <form class="stack" onSubmit={submit}>
          <input type="text" name="username" autocomplete="username" value={name} readOnly hidden />
          <Field label="New password" type="password" value={password} onValue={setPassword} autocomplete="new-password" required />
          <Field label="New password again" type="password" value={again} onValue={setAgain} autocomplete="new-password" required problem={again !== '' && again !== password ? 'The passwords differ.' : undefined} />
          <Problem error={error} />
          <div class="actions"><Button kind="primary" type="submit" busy={busy} disabled={password === '' || password !== again}>Change</Button></div>
        </form>}
      </Card>
    </div>
  );
}
