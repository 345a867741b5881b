import { describe, expect, test } from 'vitest';
import { describeEnd } from '../pages/replicate.tsx';
import { suggestion, type Explained } from '../pages/explain.tsx';
import { levelOf, slowRequests } from '../pages/logs.tsx';
import { batches } from '../pages/upload.tsx';
import { href, parseHash } from '../router.ts';
import { match } from '../ui/palette.tsx';
import { bytes, duration, short, withoutPassword } from '../ui/words.ts';
import { copyAs } from './copy.ts';
import { docPath, query } from './http.ts';
import { Series, rate, readMetrics, total } from './prometheus.ts';

describe('addresses', () => {
  test.each([
    [['db', 'a/b', 'doc', '_design/x'], '#/db/a%2Fb/doc/_design%2Fx'],
    [['databases'], '#/databases'],
    [['db', 'ü', 'doc', '<b>?#&'], '#/db/%C3%BC/doc/%3Cb%3E%3F%23%26'],
  ])('%j is %s and back', (path, hash) => {
    expect(href(path)).toBe(hash);
    expect(parseHash(hash).path).toEqual(path);
  });

  test('hold states', () => {
    const hash = href(['db', 'x'], { q: 'a&b=c', none: undefined, empty: '' });
    expect(hash).toBe('#/db/x?q=a%26b%3Dc');
    expect(parseHash(hash).query.get('q')).toBe('a&b=c');
  });

  test.each([
    ['#/_all_dbs', ['databases']],
    ['#database/orders/_all_docs', ['db', 'orders']],
    ['#/database/orders/_find', ['db', 'orders', 'query']],
    ['#/database/a%2Fb/_design/d/_view/v', ['db', 'a/b', 'view', 'd', 'v']],
    ['#/database/orders/doc-1', ['db', 'orders', 'doc', 'doc-1']],
    ['#/activetasks', ['activity']],
    ['#/_config', ['config']],
    ['#/%E0%A4%A', ['%E0%A4%A']],
  ])('of Fauxton: %s', (hash, path) => expect(parseHash(hash).path).toEqual(path));

  test('of documents and queries on the server', () => {
    expect(docPath('_design/a/b')).toBe('_design/a%2Fb');
    expect(docPath('a/b?c')).toBe('a%2Fb%3Fc');
    expect(query({ a: 1, b: undefined, c: '', d: false, startkey: '"ä"' })).toBe('?a=1&d=false&startkey=%22%C3%A4%22');
  });
});

describe('copy as', () => {
  const url = (path: string) => `http://h:1/${path}`;
  const check = (client: Parameters<typeof copyAs>[0], method: string, path: string, body: string | undefined, expected: string) =>
    expect(copyAs(client, { method, path, body }, url)).toContain(expected);
  test('curl quotes for a shell', () => {
    check('curl', 'GET', 'db/_all_docs?limit=5', undefined, "curl --user NAME 'http://h:1/db/_all_docs?limit=5'");
    check('curl', 'POST', 'db/_find', `{"selector":{"a":"it's; rm -rf /"}}`, `-d '{"selector":{"a":"it'\\''s; rm -rf /"}}'`);
  });
  test('PouchDB and nano', () => {
    check('PouchDB', 'GET', 'db/_all_docs?limit=5&startkey=%22a%22', undefined, 'await db.allDocs({ limit: 5, startkey: "a" });');
    check('PouchDB', 'GET', 'db/_design/d/_view/v?group=true', undefined, 'await db.query("d/v", { group: true });');
    check('nano', 'GET', 'db/_design/d/_view/v?group=true', undefined, 'await db.view("d", "v", { group: true });');
    check('nano', 'GET', 'db/a%2Fb', undefined, 'await db.get("a/b");');
    check('PouchDB', 'GET', 'db/_design/d', undefined, 'await db.get("_design/d");');
    check('PouchDB', 'GET', '_active_tasks', undefined, 'curl');
    check('nano', 'POST', 'db/_find', '{"selector":{}}', 'await db.find({"selector":{}});');
  });
});

describe('numbers of the server', () => {
  test('are read and summed', () => {
    const samples = readMetrics('# TYPE a counter\na{code="404",x="a\\"b"} 3\na{code="500"} 2\nb 1.5e3\n\nbroken');
    expect(total(samples, 'a')).toBe(5);
    expect(total(samples, 'a', ({ code }) => code === '404')).toBe(3);
    expect(total(samples, 'b')).toBe(1500);
    expect(total(samples, 'none')).toBeUndefined();
  });
  test('become rates', () => {
    expect(rate(10, 30, 2)).toBe(10);
    expect(rate(30, 10, 2)).toBeUndefined();
    expect(rate(undefined, 10, 2)).toBeUndefined();
  });
  test('of the newest times only', () => {
    const series = new Series(['a'], 2);
    for (const at of [1, 2, 3]) series.push(at, [at * 10]);
    expect(series.data()).toEqual([[2, 3], [20, 30]]);
  });
  test('in words', () => {
    expect([bytes(0), bytes(999), bytes(1500), bytes(2_000_000), bytes(undefined)]).toEqual(['0 B', '999 B', '1.5 KB', '2.0 MB', '–']);
    expect([duration(0.5), duration(61), duration(4000), duration(200_000)]).toEqual(['500 ms', '61 s', '67 min', '2 days']);
    expect(short(1234)).toBe('1.2K');
    expect(withoutPassword('https://a:secret@h/db')).toBe('https://a:***@h/db');
  });
});

test('slow requests are read from the log', () => {
  const line = '[warning] 2026-01-01T00:00:00.000000Z nonode@nohost <0.0.0> ab12 a slow request request="ab12" method=GET target="/db/_design/d/_view/v?x=1" duration_ms=1234 route="/{db}/_design/{ddoc}/_view/{view}"';
  expect(slowRequests(['[info] other', line])).toEqual([{ method: 'GET', target: '/db/_design/d/_view/v?x=1', ms: 1234, route: '/{db}/_design/{ddoc}/_view/{view}', line }]);
  const told = line + ' reads=3 entries=20010 read_bytes=4000123';
  expect(slowRequests([told])).toMatchObject([{ ms: 1234, entries: 20010, read: 4000123 }]);
  expect(levelOf(line)).toBe('warning');
});

test('the palette finds letters in order', () => {
  expect(match('New replication', 'rep')).toBe(4);
  expect(match('Users', 'usr')).toBeGreaterThan(0);
  expect(match('Users', 'xyz')).toBeUndefined();
  expect(match('Logs', '')).toBe(0);
});

test('indexes that are suggested have equal members first', () => {
  const explained = (selector: unknown, type = 'special') => ({ index: { ddoc: null, name: '_all_docs', type, def: {} }, selector }) as Explained;
  expect(suggestion(explained({ $and: [{ total: { $gt: 1 } }, { state: { $eq: 'paid' } }] }))).toEqual(['state', 'total']);
  expect(suggestion(explained({ _id: { $gt: null } }))).toEqual([]);
  expect(suggestion(explained({ a: { $eq: 1 } }, 'json'))).toEqual([]);
});

test('ends of replications', () => {
  const end = { kind: 'here' as const, name: 'a', url: '', auth: 'none' as const, user: '', password: '' };
  const here = (name: string) => `http://h/${name}`;
  expect(describeEnd(end, here)).toBe('http://h/a');
  expect(describeEnd({ ...end, auth: 'basic', user: 'u', password: 'p' }, here)).toEqual({ url: 'http://h/a', auth: { basic: { username: 'u', password: 'p' } } });
  expect(describeEnd({ ...end, kind: 'elsewhere', url: 'https://x/db', auth: 'bearer', password: 't' }, here)).toEqual({ url: 'https://x/db', headers: { Authorization: 'Bearer t' } });
});

test('uploads go in batches by number and size', () => {
  const docs = Array.from({ length: 1200 }, () => '{}');
  expect([...batches(docs)].map((batch) => batch.length)).toEqual([500, 500, 200]);
  expect([...batches(['x'.repeat(1_500_000), 'y'.repeat(1_500_000)])].length).toBe(2);
});
