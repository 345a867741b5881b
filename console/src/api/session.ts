import { signal } from '../ui/signal.ts';
import { acting, stopActing } from './acting.ts';
import { draftsReady, setDraftOwner } from './drafts.ts';
import { ApiError, get, otherServers, send } from './http.ts';
import { root } from './paths.ts';
import { removeLogin, server, storeLogin } from './servers.ts';

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

export interface SessionState {
  session: Session;
  welcome: Welcome | undefined;
  /** False until the session and the server information are loaded. */
  ready: boolean;
  /** True if the server answers unauthenticated requests with an error. */
  closed: boolean;
  /** True if the policy of the page does not permit the server in the address. */
  unknown: boolean;
}

export const sessionState = signal<SessionState>({ session: { name: null, roles: [] }, welcome: undefined, ready: false, closed: false, unknown: false });

export const permittedServers = signal<string[]>([]);

/** True after the session has expired. The page remains open, and the login form is shown over it. */
export const expired = signal(false);
export const loginOpen = signal(false);
/** Number of logins. Pages reload their data when it changes. */
export const logins = signal(0);

export function isAdmin(): boolean {
  return sessionState.value.session.roles.includes('_admin');
}

/** True on a server without an administrator, where every client has all permissions. */
export function isParty(): boolean {
  return sessionState.value.session.name === null && isAdmin();
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
    permittedServers.value = names;
    return names;
  });
  // Requests and passwords must not be sent to a server that the administrator of the console has not permitted.
  if (server !== '' && !(await listed).includes(server)) {
    sessionState.value = { ...sessionState.value, ready: true, unknown: true };
    return;
  }
  // Both requests are sent concurrently, because each costs a round trip.
  const rootRequest = get<Root>('').catch(() => undefined);
  const session = await get<{ userCtx: Session }>('_session').then(({ userCtx }) => userCtx).catch((error: unknown): Session => {
    if (!(error instanceof ApiError) || error.status === 0) throw error;
    closed = true;
    return { name: null, roles: [] };
  });
  // The session of the administrator has ended, the user is deleted, or the server does not support the header.
  if (acting !== '' && session.name !== acting) {
    stopActing();
    return;
  }
  const found = await rootRequest;
  const vendor = found?.vendor?.name ?? 'CouchDB';
  const welcome = found && {
    vendor,
    version: found.vendor?.version ?? found.version ?? '',
    uuid: found.uuid ?? '',
    features: found.features ?? [],
    isSettee: /settee/i.test(vendor),
  };
  await drafts;
  setDraftOwner(root(), session.name ?? '');
  expired.value = false;
  // Another server always requires a login, because the console needs more than its public endpoints.
  const isOutside = server !== '' && session.name === null && !session.roles.includes('_admin');
  sessionState.value = { session, welcome, ready: true, closed: closed || isOutside || welcome === undefined, unknown: false };
}

export async function login(name: string, password: string): Promise<void> {
  if (server === '') await send('POST', '_session', { body: JSON.stringify({ name, password }) });
  else await loginTo(server, name, password);
  await refresh();
  loginOpen.value = false;
  logins.value += 1;
}

/** Stores the password for all requests to another server, because this page cannot use cookies of it. */
export async function loginTo(on: string, name: string, password: string): Promise<void> {
  storeLogin(name, password, on);
  try {
    await get('_session', undefined, on);
  } catch (error) {
    removeLogin(on);
    throw error;
  }
}

let checking = false;

/** Called after a response with status 401. Opens the login form if the session has expired; a missing permission also causes 401. */
export async function checkSession(isWrite: boolean): Promise<void> {
  if (sessionState.value.session.name === null || checking) return;
  if (expired.value) {
    if (isWrite) loginOpen.value = true;
    return;
  }
  checking = true;
  try {
    const hasExpired = await get<{ userCtx: Session }>('_session').then(({ userCtx }) => userCtx.name === null, (error: unknown) => error instanceof ApiError && error.status === 401);
    expired.value = hasExpired;
    if (hasExpired) loginOpen.value = true;
  } finally {
    checking = false;
  }
}

export async function logout(): Promise<void> {
  if (server === '') await send('DELETE', '_session');
  else removeLogin();
  await refresh();
}
