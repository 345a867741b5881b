/** Initial setup of a server: administrator, system databases and CORS. */
import { useState } from 'preact/hooks';
import { CORS_HEADERS, CORS_METHODS, SYSTEM_DATABASES, createDatabase, setConfig, setCors } from '../api/config.ts';
import { ApiError } from '../api/http.ts';
import { isAdmin, isParty, login } from '../api/session.ts';
import { go } from '../router.ts';
import { Button, Card, Check, Empty, Field, LinkButton, PageHead, Problem, showToast } from '../ui/kit.tsx';
import { useAction } from '../ui/use.ts';

export function Setup() {
  const [name, setName] = useState('admin');
  const [password, setPassword] = useState('');
  const [again, setAgain] = useState('');
  const [databases, setDatabases] = useState(true);
  const [cors, setCorsOn] = useState(false);
  const [origins, setOrigins] = useState('');
  const [step, setStep] = useState('');
  const { busy, error, run } = useAction();
  if (!isParty()) {
    return (
      <Empty icon="check" title={isAdmin() ? 'This server is set up' : 'This server is already set up'} action={<LinkButton to={['databases']} kind="primary">To the databases</LinkButton>}>
        The server has an administrator. Databases, CORS and users are configured on separate pages.
      </Empty>
    );
  }
  const differs = again !== '' && password !== again ? 'The passwords differ.' : undefined;
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      if (databases) {
        for (const database of SYSTEM_DATABASES) {
          setStep(`Creating ${database} …`);
          await createDatabase(database).catch((problem: unknown) => {
            if (!(problem instanceof ApiError && problem.status === 412)) throw problem;
          });
        }
      }
      if (cors) {
        setStep('Setting CORS …');
        await setCors({ enabled: true, origins: origins || '*', credentials: origins !== '' && origins !== '*', headers: CORS_HEADERS, methods: CORS_METHODS });
      }
      // The last step, because unauthenticated clients, such as this page, lose their permissions.
      setStep('Creating the administrator …');
      await setConfig('admins', name, password);
      await login(name, password);
      showToast('The server is set up.');
      go(['databases']);
    });
  };
  return (
    <form class="stack narrow" onSubmit={submit}>
      <PageHead title="Set up this server" note="Until the server has an administrator, every client that reaches it has all permissions." />
      <Card title="Administrator">
        <Field label="Name" value={name} onValue={setName} autocomplete="username" required />
        <Field label="Password" type="password" value={password} onValue={setPassword} autocomplete="new-password" required minLength={1} />
        <Field label="Password again" type="password" value={again} onValue={setAgain} autocomplete="new-password" required problem={differs} />
      </Card>
      <Card title="System databases">
        <Check label="Create _users, _replicator and _global_changes" checked={databases} onChecked={setDatabases} hint="For users with passwords, stored replications, and a feed of the changes of all databases." />
      </Card>
      <Card title="Pages of other origins (CORS)">
        <Check label="Allow requests from pages of other origins" checked={cors} onChecked={setCorsOn} hint="Needed by PouchDB and other applications in browsers." />
        {cors && <Field label="Origins" value={origins} onValue={setOrigins} placeholder="https://app.example.com, http://localhost:3000" hint="Separated by commas. Empty: all origins, without cookies." mono />}
      </Card>
      <Problem error={error} />
      <div class="actions"><Button kind="primary" type="submit" busy={busy} disabled={password === '' || password !== again || name === ''}>Set up</Button>{busy && <span class="note" role="status">{step}</span>}</div>
    </form>
  );
}
