/**
 * Per-document access: the readers of a document, and the choice of a user whose documents are shown. Readers are part of the text of
 * the document, so that they are saved with it.
 */
import { useMemo, useState } from 'preact/hooks';
import { actAs } from '../api/acting.ts';
import { people, type People } from '../api/choices.ts';
import { server } from '../api/servers.ts';
import { isAdmin, sessionState } from '../api/session.ts';
import { EVERY_USER, readersOf, withReaders } from '../json/readers.ts';
import { href } from '../router.ts';
import { ChoiceField } from '../ui/choice.tsx';
import { Button, Dialog, Link } from '../ui/kit.tsx';
import { useRequest } from '../ui/use.ts';

/** Maximum length of a document whose readers are shown, because the document is parsed after each key stroke. */
const DOCUMENT_CHARS_MAX = 1_000_000;
const UNKNOWN: People = { names: [], roles: [] };

/** Reads users and roles for suggestions. Only administrators can read them. */
function usePeople(isNeeded: boolean): People {
  return useRequest((signal) => (isNeeded && isAdmin() ? people(signal) : Promise.resolve(UNKNOWN)), []).data ?? UNKNOWN;
}

/** True if the documents of this database and id have readers. */
export function hasReaders(info: { access?: boolean } | undefined, id = ''): boolean {
  return info?.access === true && !/^_(?:design|local)\//.test(id);
}

export function Readers({ text, now, onText, readOnly }: { text: string; now: () => string; onText: (text: string) => void; readOnly: boolean }) {
  const [typed, setTyped] = useState('');
  const known = usePeople(!readOnly);
  const names = useMemo(() => (text.length > DOCUMENT_CHARS_MAX ? undefined : readersOf(text)), [text]);
  if (names === undefined) return <p class="note">The readers are edited in the JSON: _access is a list of names of users and roles.</p>;
  const change = (edit: (names: string[]) => string[]) => {
    // The JSON is edited concurrently and can be malformed.
    const newest = readersOf(now());
    if (newest !== undefined) onText(withReaders(now(), edit(newest)));
  };
  const add = (event: Event) => {
    event.preventDefault();
    const name = typed.trim();
    if (name !== '') change((old) => (old.includes(name) ? old : [...old, name]));
    setTyped('');
  };
  const choices = [...known.names, ...known.roles, EVERY_USER].filter((name) => !names.includes(name));
  return (
    <form class="row" aria-label="Readers" onSubmit={add}>
      <span class="note">{names.length === 0 ? 'Read and edited by administrators only.' : 'Read and edited by'}</span>
      {names.length > 0 && <div class="chips">{names.map((name) => <span key={name} class="tag">{name === EVERY_USER ? 'all users' : name}{!readOnly && <button type="button" aria-label={`Remove ${name}`} onClick={() => change((old) => old.filter((each) => each !== name))}>×</button>}</span>)}</div>}
      {!readOnly && <><ChoiceField label="User or role" hideLabel value={typed} onValue={setTyped} choices={choices} placeholder="User or role" autocomplete="off" /><Button type="submit" icon="plus" disabled={typed.trim() === ''}>Add reader</Button></>}
    </form>
  );
}

/** True if the server lets this user send requests as another one. */
export function canViewAs(): boolean {
  return isAdmin() && server === '' && sessionState.value.welcome?.isSettee === true;
}

/** Shows the database as a user, or the documents of a role as results of a query. */
export function ViewAs({ db, onClose }: { db: string; onClose: () => void }) {
  const [name, setName] = useState('');
  const known = usePeople(true);
  const selector = (role: string) => JSON.stringify({ selector: { _access: { $elemMatch: { $eq: role } } }, limit: 100 }, null, 2);
  return (
    <Dialog title={`View ${db} as a user`} onClose={onClose}>
      <form class="stack" onSubmit={(event) => { event.preventDefault(); actAs(name.trim(), href(['db', db])); }}>
        <ChoiceField label="User" value={name} onValue={setName} choices={known.names} required autocomplete="off" hint="This tab then sends its requests as this user, with the roles of the account, until you stop it." />
        {known.roles.length > 0 && <p class="row">Documents of a role: {[...known.roles, EVERY_USER].map((role) => <Link key={role} to={['db', db, 'query']} query={{ q: selector(role) }}>{role}</Link>)}</p>}
        <div class="actions end"><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit" disabled={name.trim() === ''}>View</Button></div>
      </form>
    </Dialog>
  );
}
