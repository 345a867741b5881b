import { expect, test } from 'vitest';
import { rightOf } from './access.ts';

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
] as const)('%j', (security, right) => {
  expect(rightOf(anna, security as never).right).toBe(right);
});

test('an administrator of the server may do everything', () => {
  expect(rightOf({ name: 'root', roles: ['_admin'] }, { members: { names: ['bob'] } }).right).toBe('server admin');
});
