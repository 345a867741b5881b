import { expect, test } from 'vitest';
import { permissionOf } from './access.ts';

const anna = { name: 'anna', roles: ['sales'] };

test.each([
  [{}, 'open'],
  [{ members: { names: [], roles: [] } }, 'open'],
  [{ members: { roles: ['_admin'] } }, 'none'],
  [{ members: { names: ['anna'] } }, 'member'],
  [{ members: { names: ['ann'], roles: ['sales'] } }, 'member'],
  [{ admins: { names: ['anna'] }, members: { names: ['bob'] } }, 'admin'],
  [{ admins: { roles: ['sales'] } }, 'admin'],
  [{ admins: { names: ['bob'] }, members: { names: ['bob'] } }, 'none'],
] as const)('%j', (security, permission) => {
  expect(permissionOf(anna, security as never).permission).toBe(permission);
});

test('an administrator of the server may do everything', () => {
  expect(permissionOf({ name: 'root', roles: ['_admin'] }, { members: { names: ['bob'] } }).permission).toBe('server admin');
});
