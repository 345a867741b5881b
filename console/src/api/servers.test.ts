import { expect, test } from 'vitest';
import { href, parseHash } from '../router.ts';
import { nameOf, policyWith, serverOf, serversOf, urlOf } from './servers.ts';

const POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; base-uri 'none'";

test.each([
  ['https://couch.example.com:6984/', 'couch.example.com:6984'],
  ['http://127.0.0.1:5984/_utils/#/databases', 'http:127.0.0.1:5984'],
  ['https://a/some/prefix', 'a/some/prefix'],
  ['https://[::1]:5984/', '[::1]:5984'],
])('the server at %s has the name %s, and the name its URL', (url, name) => {
  expect(nameOf(url)).toBe(name);
  expect(nameOf(urlOf(name) ?? '')).toBe(name);
  expect(serverOf(href(['db', 'x'], {}, name))).toBe(name);
  expect(parseHash(href(['db', 'x'], {}, name)).path).toEqual(['db', 'x']);
});

test.each(['', 'a', 'ftp://a/', 'https://user:pw@a/', 'https://a/?x=1', "https://a/'self'", 'https://a/x;y', 'javascript:alert(1)'])('%s is no server', (url) => expect(nameOf(url)).toBeUndefined());

test.each(['a b', "a; script-src *", 'a/../b', 'a//b', 'user@a', ''])('the name %s has no URL', (name) => expect(urlOf(name)).toBeUndefined());

test('only the servers of a policy are replaced', () => {
  const two = policyWith(POLICY, ['a', 'http:b:1']);
  expect(two).toBe("default-src 'none'; script-src 'self'; connect-src 'self' https://a/ http://b:1/; base-uri 'none'");
  expect(serversOf(two)).toEqual(['a', 'http:b:1']);
  expect(policyWith(two, [])).toBe(POLICY);
  expect(policyWith("default-src 'self'", ['a'])).toBe("default-src 'self'; connect-src 'self' https://a/");
  expect(serversOf('')).toEqual([]);
});
