/** The user and the server of the page, and the features of that server. */
import { signal } from '../ui/signal.ts';
import { draftsReady, ownDrafts } from './drafts.ts';
import { ApiError, get, otherServers, send } from './http.ts';
import { root } from './paths.ts';
import { keepLogin, server } from './servers.ts';

export interface Session {
  name: string | null;
  roles: string[];
}

export interface Welcome {
  vendor: string;
  version: string;
  uuid: string;
  features: string[];
  isSettee: boolean;
}

export interface World {
  session: Session;
  welcome: Welcome | undefined;
  /** False until both were asked for. */
  ready: boolean;
  /** Nothing can be asked without logging in. */
  closed: boolean;
  /** The address names a server that the policy of the page does not permit. */
  unknown: boolean;
}

export const world = signal<World>({ session: { name: null, roles: [] }, welcome: undefined, ready: false, closed: false, unknown: false });

/** The names of the other servers that the page may work with. */
export const others = signal<string[]>([]);

/** True after the session of the user has ended without a logout. The page stays, and asks for the password over it. */
export const expired = signal(false);
/** True while the form of the login is shown over the page. */
export const loginOpen = signal(false);
/** Counts logins: what a page shows is asked for again after each. */
export const logins = signal(0);

export function isAdmin(): boolean {
  return world.value.session.roles.includes('_admin');
}

/** True on a server without an administrator, where every client has all permissions. */
export function isParty(): boolean {
  return world.value.session.name === null && isAdmin();
}

interface Root {
  couchdb?: string;
  version?: string;
  uuid?: string;
  features?: string[];
  vendor?: { name?: string; version?: string };
}

export async function refresh(): Promise<void> {
  let closed = false;
  const drafts = draftsReady();
  const listed = otherServers().then((names) => {
    others.value = names;
    return names;
  });
  // No request and no password is sent to a server that the administrator of the console has not named.
  if (server !== '' && !(await listed).includes(server)) {
    world.value = { ...world.value, ready: true, unknown: true };
    return;
  }
  // Both requests are sent at once: each costs a round trip.
  const greeting = get<Root>('').catch(() => undefined);
  const session = await get<{ userCtx: Session }>('_session').then(({ userCtx }) => userCtx).catch((error: unknown): Session => {
    if (!(error instanceof ApiError) || error.status === 0) throw error;
    closed = true;
    return { name: null, roles: [] };
  });
  const told = await greeting;
  const vendor = told?.vendor?.name ?? 'CouchDB';
  const welcome = told && {
    vendor,
    version: told.vendor?.version ?? told.version ?? '',
    uuid: told.uuid ?? '',
    features: told.features ?? [],
    isSettee: /settee/i.test(vendor),
  };
  await drafts;
  ownDrafts(root(), session.name ?? '');
  expired.value = false;
  // Users of another server log in first: its public parts alone are of no use here.
  const isOutside = server !== '' && session.name === null && !session.roles.includes('_admin');
  world.value = { session, welcome, ready: true, closed: closed || isOutside || welcome === undefined, unknown: false };
}

export async function login(name: string, password: string): Promise<void> {
  if (server === '') await send('POST', '_session', { body: JSON.stringify({ name, password }) });
  else await loginElsewhere(name, password);
  await refresh();
  loginOpen.value = false;
  logins.value += 1;
}

/** Another server gets the password with each request, because its cookies do not reach this page. */
async function loginElsewhere(name: string, password: string): Promise<void> {
  keepLogin(name, password);
  try {
    await get('_session');
  } catch (error) {
    keepLogin();
    throw error;
  }
}

let checking = false;

/** After an answer 401: if the session is over, the login opens over the page. A user without rights gets 401 as well. */
export async function checkSession(isWrite: boolean): Promise<void> {
  if (world.value.session.name === null || checking) return;
  if (expired.value) {
    if (isWrite) loginOpen.value = true;
    return;
  }
  checking = true;
  try {
    const isOver = await get<{ userCtx: Session }>('_session').then(({ userCtx }) => userCtx.name === null, (error: unknown) => error instanceof ApiError && error.status === 401);
    expired.value = isOver;
    if (isOver) loginOpen.value = true;
  } finally {
    checking = false;
  }
}

export async function logout(): Promise<void> {
  if (server === '') await send('DELETE', '_session');
  else keepLogin();
  await refresh();
}
