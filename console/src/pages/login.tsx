/** Logging in, where that is needed or wished. */
import { useState } from 'preact/hooks';
import { ApiError } from '../api/http.ts';
import { login, world } from '../api/session.ts';
import { go } from '../router.ts';
import { Logo } from '../ui/icons.tsx';
import { Button, Field, Problem } from '../ui/kit.tsx';
import { useAction, useTitle } from '../ui/use.ts';

export function Login({ back }: { back: string | null }) {
  useTitle('Log in');
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const { busy, error, run } = useAction();
  const shown = error instanceof ApiError && error.status === 401 ? new Error('Name or password is wrong.') : error;
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      await login(name, password);
      leave(back);
    });
  };
  return (
    <main class="alone">
      <form class="card" onSubmit={submit}>
        <p class="brand"><Logo size={36} />{world.value.welcome?.isSettee === false ? 'CouchDB' : 'Settee'}</p>
        <h1>Log in</h1>
        <Field label="Name" name="username" value={name} onValue={setName} autocomplete="username" autofocus required />
        <Field label="Password" name="password" type="password" value={password} onValue={setPassword} autocomplete="current-password" required />
        <Problem error={shown} />
        <Button kind="primary" type="submit" busy={busy}>Log in</Button>
        {!world.value.closed && <Button kind="quiet" onClick={() => go(['databases'])}>Go on without</Button>}
      </form>
    </main>
  );
}

/** To where somebody was: within the console, or to the page of this server that sent the browser here. */
function leave(back: string | null): void {
  const asked = new URLSearchParams(location.search).get('return');
  if (location.pathname.endsWith('/session.html')) {
    const root = new URL('../', location.href);
    const target = asked === null ? undefined : new URL(asked.replace(/^\/+/, ''), root);
    location.assign(target?.origin === location.origin ? target : new URL('_utils/', root));
    return;
  }
  if (back?.startsWith('#/') && !back.startsWith('#/login')) location.hash = back.slice(1);
  else if (location.hash.startsWith('#/login')) go(['databases']);
}
