import { useState } from 'preact/hooks';
import { ApiError } from '../api/http.ts';
import { expired, login, loginOpen, sessionState } from '../api/session.ts';
import { server } from '../api/servers.ts';
import { go, goTo, route } from '../router.ts';
import { Logo } from '../ui/icons.tsx';
import { Button, Dialog, Field, Problem } from '../ui/kit.tsx';
import { useSignal } from '../ui/signal.ts';
import { useAction } from '../ui/use.ts';

export function Login({ back }: { back: string | null }) {
  return (
    <main class="alone">
      <div class="card">
        <p class="brand"><Logo size={36} />{sessionState.value.welcome?.isSettee === false ? 'CouchDB' : 'Settee'}</p>
        <h1>{server === '' ? 'Log in' : <>Log in to {server}</>}</h1>
        {server !== '' && <p class="note">The password is kept in this tab, until it is closed or you log out.</p>}
        <LoginForm onDone={() => returnBack(back)}>{!sessionState.value.closed && <Button kind="quiet" onClick={() => go(['databases'])}>Continue without logging in</Button>}{server !== '' && <Button kind="quiet" onClick={() => goTo('')}>Back to {location.host}</Button>}</LoginForm>
      </div>
    </main>
  );
}

/** Login form over the page, which keeps its unsaved text. */
export function LoginDialog() {
  const isOpen = useSignal(loginOpen);
  const hasExpired = useSignal(expired);
  if (!isOpen) return null;
  const close = () => { loginOpen.value = false; };
  return (
    <Dialog title="Log in" onClose={close}>
      {hasExpired && <p>Your session has expired. Log in to continue; unsaved text on the page is kept.</p>}
      <LoginForm user={hasExpired ? (sessionState.value.session.name ?? '') : ''} onDone={close}><Button onClick={close}>Not now</Button></LoginForm>
    </Dialog>
  );
}

/** `act` logs in, by default to the server of the page. */
export function LoginForm({ user = '', act = login, onDone, children }: { user?: string; act?: (name: string, password: string) => Promise<void>; onDone: () => void; children?: preact.ComponentChildren }) {
  const [name, setName] = useState(user);
  const [password, setPassword] = useState('');
  const { busy, error, run } = useAction();
  const shown = error instanceof ApiError && error.status === 401 ? new Error('Name or password is wrong.') : error;
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      await act(name, password);
      onDone();
    });
  };
  return (
    <form class="stack" onSubmit={submit}>
      <Field label="Name" name="username" value={name} onValue={setName} autocomplete="username" autofocus={user === ''} required />
      <Field label="Password" name="password" type="password" value={password} onValue={setPassword} autocomplete="current-password" autofocus={user !== ''} required />
      <Problem error={shown} />
      <Button kind="primary" type="submit" busy={busy}>Log in</Button>
      {children}
    </form>
  );
}

/** Returns to the previous page of the console, or to the page of this server that redirected the browser. */
function returnBack(back: string | null): void {
  const returnTo = new URLSearchParams(location.search).get('return');
  if (location.pathname.endsWith('/session.html')) {
    const root = new URL('../', location.href);
    const target = returnTo === null ? undefined : new URL(returnTo.replace(/^\/+/, ''), root);
    location.assign(target?.origin === location.origin ? target : new URL('_utils/', root));
    return;
  }
  if (back?.startsWith('#/') && !back.startsWith('#/login')) location.hash = back.slice(1);
  else if (route().path[0] === 'login') go(['databases']);
}
