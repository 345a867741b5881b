/** Who speaks to which server, and what that server can do. */
import { signal } from '../ui/signal.ts';
import { ApiError, get, send } from './http.ts';

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
}

export const world = signal<World>({ session: { name: null, roles: [] }, welcome: undefined, ready: false, closed: false });

export function isAdmin(): boolean {
  return world.value.session.roles.includes('_admin');
}

/** Without an administrator everybody is one. */
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
  const session = await get<{ userCtx: Session }>('_session').then(({ userCtx }) => userCtx).catch((error: unknown) => {
    if (!(error instanceof ApiError) || error.status === 0) throw error;
    closed = true;
    return { name: null, roles: [] };
  });
  const root = await get<Root>('').catch(() => undefined);
  const vendor = root?.vendor?.name ?? 'CouchDB';
  const welcome = root && {
    vendor,
    version: root.vendor?.version ?? root.version ?? '',
    uuid: root.uuid ?? '',
    features: root.features ?? [],
    isSettee: /settee/i.test(vendor),
  };
  world.value = { session, welcome, ready: true, closed: closed || welcome === undefined };
}

export async function login(name: string, password: string): Promise<void> {
  await send('POST', '_session', { body: JSON.stringify({ name, password }) });
  await refresh();
}

export async function logout(): Promise<void> {
  await send('DELETE', '_session');
  await refresh();
}
