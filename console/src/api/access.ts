/** Permissions of a user in each database. They are computed from `_security`, because the server has no request that returns them. */
import { get } from './http.ts';
import { path, query } from './paths.ts';

export const ACCESS_DBS_MAX = 500;
const CONCURRENT = 6;

interface Group {
  names?: string[];
  roles?: string[];
}

export interface Security {
  admins?: Group;
  members?: Group;
}

export type Permission = 'server admin' | 'admin' | 'member' | 'open' | 'none';

export interface Access {
  db: string;
  permission: Permission;
  /** The entry of the security object that grants the permission. */
  because: string;
}

export function permissionOf(user: { name: string; roles: string[] }, security: Security): Omit<Access, 'db'> {
  if (user.roles.includes('_admin')) return { permission: 'server admin', because: 'role _admin' };
  const admin = match(user, security.admins);
  if (admin !== undefined) return { permission: 'admin', because: admin };
  const { names = [], roles = [] } = security.members ?? {};
  if (names.length + roles.length === 0) return { permission: 'open', because: 'the database has no members' };
  const member = match(user, security.members);
  return member === undefined ? { permission: 'none', because: 'no entry names the user or a role' } : { permission: 'member', because: member };
}

function match(user: { name: string; roles: string[] }, group: Group = {}): string | undefined {
  if (group.names?.includes(user.name)) return `user ${user.name}`;
  const role = group.roles?.find((each) => user.roles.includes(each));
  return role === undefined ? undefined : `role ${role}`;
}

/** Returns the permissions in the first `ACCESS_DBS_MAX` databases. `isCut` is true if the server has more databases. */
export async function accessOf(user: { name: string; roles: string[] }, signal: AbortSignal): Promise<{ permissions: Access[]; isCut: boolean }> {
  const names = await get<string[]>(`_all_dbs${query({ limit: ACCESS_DBS_MAX + 1 })}`, signal);
  const dbs = names.slice(0, ACCESS_DBS_MAX);
  const permissions: Access[] = [];
  let next = 0;
  const work = async () => {
    for (let at = next++; at < dbs.length; at = next++) {
      const db = dbs[at] ?? '';
      permissions[at] = { db, ...permissionOf(user, await get<Security>(path`${db}/_security`, signal)) };
    }
  };
  await Promise.all(Array.from({ length: CONCURRENT }, work));
  return { permissions, isCut: names.length > ACCESS_DBS_MAX };
}
