import { describe, expect, test } from 'vitest';
import { describeEndpoint, splitUrl } from '../pages/replicate.tsx';
import { suggestion, type Explained } from '../pages/explain.tsx';
import { levelOf, slowRequests } from '../pages/logs.tsx';
import { href, parseHash } from '../router.ts';
import { match } from '../ui/palette.tsx';
import { bytes, duration, short, withoutPassword } from '../ui/words.ts';
import { copyAs } from './copy.ts';
import { ApiError } from './http.ts';
import { NoAddress, address, attachmentPath, designPath, docPath, isDocumentId, path, query, userPath } from './paths.ts';
import { NO_PROGRESS, batches, storeBatch } from './upload.ts';
import type { Refusal } from '../json/import.ts';
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

  test('contain parameters', () => {
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
    expect(docPath('x', '_design/a/b')).toBe('x/_design/a%2Fb');
    expect(docPath('x', 'a/b?c')).toBe('x/a%2Fb%3Fc');
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
  test('of the newest points only', () => {
    const series = new Series(['a'], 2);
    for (const at of [1, 2, 3]) series.push(at, [at * 10]);
    expect(series.data()).toEqual([[2, 3], [20, 30]]);
  });
  test('are formatted with units', () => {
    expect([bytes(0), bytes(999), bytes(1500), bytes(2_000_000), bytes(undefined)]).toEqual(['0 B', '999 B', '1.5 KB', '2.0 MB', '–']);
    expect([duration(0.5), duration(61), duration(4000), duration(200_000)]).toEqual(['500 ms', '61 s', '67 min', '2 days']);
    expect(short(1234)).toBe('1.2K');
    expect(withoutPassword('https://a:secret@h/db')).toBe('https://a:***@h/db');
  });
});

test('slow requests are read from the log', () => {
  const line = '[warning] 2026-01-01T00:00:00.000000Z nonode@nohost <0.0.0> ab12 a slow request request="ab12" method=GET target="/db/_design/d/_view/v?x=1" duration_ms=1234 route="/{db}/_design/{ddoc}/_view/{view}"';
  expect(slowRequests(['[info] other', line])).toEqual([{ method: 'GET', target: '/db/_design/d/_view/v?x=1', ms: 1234, route: '/{db}/_design/{ddoc}/_view/{view}', line }]);
  const withCosts = line + ' reads=3 entries=20010 read_bytes=4000123';
  expect(slowRequests([withCosts])).toMatchObject([{ ms: 1234, entries: 20010, read: 4000123 }]);
  expect(levelOf(line)).toBe('warning');
});

test('the palette matches letters in their order', () => {
  expect(match('New replication', 'rep')).toBe(4);
  expect(match('Users', 'usr')).toBeGreaterThan(0);
  expect(match('Users', 'xyz')).toBeUndefined();
  expect(match('Logs', '')).toBe(0);
});

test('a suggested index begins with the fields that are compared for equality', () => {
  const explained = (selector: unknown, type = 'special') => ({ index: { ddoc: null, name: '_all_docs', type, def: {} }, selector }) as Explained;
  expect(suggestion(explained({ $and: [{ total: { $gt: 1 } }, { state: { $eq: 'paid' } }] }))).toEqual(['state', 'total']);
  expect(suggestion(explained({ _id: { $gt: null } }))).toEqual([]);
  expect(suggestion(explained({ a: { $eq: 1 } }, 'json'))).toEqual([]);
});

test('sources and targets of replications', () => {
  const end = { kind: 'here' as const, name: 'a', url: '', auth: 'none' as const, user: '' };
  const away = { ...end, kind: 'elsewhere' as const, url: 'https://x/db' };
  const here = (name: string) => `http://h/${name}`;
  expect(describeEndpoint({ ...end, auth: 'basic', user: 'u' }, 'p')).toBe('a');
  expect(describeEndpoint(end, '', here)).toBe('http://h/a');
  expect(describeEndpoint({ ...end, auth: 'basic', user: 'u' }, 'p', here)).toEqual({ url: 'http://h/a', auth: { basic: { username: 'u', password: 'p' } } });
  expect(describeEndpoint({ ...away, auth: 'bearer' }, 't')).toEqual({ url: 'https://x/db', headers: { Authorization: 'Bearer t' } });
  for (const auth of ['basic', 'bearer'] as const) {
    for (const [each, base] of [[end, here], [away, undefined], [away, here]] as const) expect(() => describeEndpoint({ ...each, auth, user: 'u' }, '', base)).toThrow('is missing');
  }
  expect(() => describeEndpoint({ ...away, auth: 'basic' }, 'p')).toThrow('name of the user');
});

test('names and passwords in the URL of a replication become its credentials', () => {
  expect(splitUrl('https://u%40x:p%2F@h:6984/db')).toEqual({ url: 'https://h:6984/db', user: 'u@x', password: 'p/' });
  expect(splitUrl('https://u@h/db')).toEqual({ url: 'https://h/db', user: 'u', password: '' });
  for (const plain of ['https://h/db', 'https://h/a@b', 'ftp', 'https://h/db?x=a:b@c']) expect(splitUrl(plain)).toBeUndefined();
});

test('uploads are split into batches by number and size', () => {
  const docs = Array.from({ length: 1200 }, () => ({ text: '{}' }));
  expect([...batches(docs)].map((batch) => batch.length)).toEqual([500, 500, 200]);
  expect([...batches([{ text: 'x'.repeat(1_500_000) }, { text: 'y'.repeat(1_500_000) }])].length).toBe(2);
});

describe('uploads that are refused in part', () => {
  const sources = (count: number) => Array.from({ length: count }, (_, index) => ({ line: index + 1, text: `{"_id":"${index + 1}"}` }));
  const numbers = (docs: string[]) => docs.map((text) => Number((JSON.parse(text) as { _id: string })._id));
  const run = async (count: number, post: (ids: number[]) => { error?: string; reason?: string }[]) => {
    const progress = { ...NO_PROGRESS, refused: [] as Refusal[] };
    let requests = 0;
    await storeBatch(sources(count), (docs) => { requests += 1; return Promise.resolve().then(() => post(numbers(docs))); }, progress);
    return { ...progress, requests, lines: progress.refused.map(({ line }) => line) };
  };
  const stored = (ids: number[]) => ids.map(() => ({}));

  test.each([400, 403, 413])('a batch that is refused with %i is halved until the documents at fault are found', async (status) => {
    const bad = new Set([1, 77, 78, 200]);
    const found = await run(200, (ids) => {
      if (ids.some((id) => bad.has(id))) throw new ApiError(status, 'refused', 'no');
      return stored(ids);
    });
    expect(found).toMatchObject({ done: 200, saved: 196, lines: [...bad] });
    expect(found.refused[0]).toEqual({ line: 1, id: '1', reason: 'no' });
    expect(found.requests).toBeLessThan(60);
  });

  test('a limit of the request size refuses no document', async () => {
    expect(await run(500, (ids) => {
      if (ids.length > 100) throw new ApiError(413, 'too_large', 'the request is too large');
      return stored(ids);
    })).toMatchObject({ done: 500, saved: 500, lines: [] });
  });

  test('rows with errors and missing rows are reported', async () => {
    const found = await run(4, () => [{}, { error: 'conflict', reason: 'Document update conflict.' }, { error: 'forbidden' }]);
    expect(found).toMatchObject({ done: 4, saved: 1, lines: [2, 3, 4] });
    expect(found.refused.map(({ reason }) => reason)).toEqual(['Document update conflict.', 'forbidden', 'The server returned no result for this document.']);
  });

  test.each([0, 401, 404, 429, 500, 503])('with %i the upload stops and can continue', async (status) => {
    const progress = { ...NO_PROGRESS, refused: [] as Refusal[] };
    await expect(storeBatch(sources(9), () => Promise.reject(new ApiError(status, 'x', 'x')), progress)).rejects.toThrow('x');
    expect(progress).toMatchObject({ done: 0, saved: 0, refused: [] });
  });
});

/** Names that need escaping, and names that an attacker could use for path traversal or injection. */
const HOSTILE = ['../../payroll', '..', '.', '../', './', '/', '//', 'a/b', '%2F', '%2e%2e', '%', '%%', 'a?b=c', 'a#b', 'a b', 'a+b', 'a&b', 'a=b', '\\', '..\\..\\x', ';', ':', '@h', '//evil.example/x', 'http://evil.example', 'ü', '名前', '😀', '\u0000', '\n', '\t', '\r\nX: y', '\u202e', '"', "'", '<b>', '_design/x', '_local/x', '_design/../x', '_security', '_all_docs', '', ' ', '\ud800', 'a\udc00b', 'x'.repeat(3000)];

describe('names in paths', () => {
  const base = 'https://h:1/prefix/';
  const random = (seed: number) => {
    let state = seed;
    const next = (below: number) => { state = (state * 1103515245 + 12345) % 2147483648; return state % below; };
    const parts = ['..', '.', '/', '%', '2e', '2F', '?', '#', '\\', ' ', '+', 'a', 'ü', '😀', '\ud800', '_', '_design/', ';', '\n'];
    return Array.from({ length: next(8) }, () => parts[next(parts.length)]).join('');
  };
  const names = [...HOSTILE, ...Array.from({ length: 2000 }, (_, index) => random(index))];
  /** The functions that build paths, with the expected segments. */
  const BUILDERS: [string, (name: string) => string, (name: string) => string[]][] = [
    ['a database', (name) => path`${name}`, (name) => [name]],
    ['a part of a database', (name) => path`${name}/_all_docs`, (name) => [name, '_all_docs']],
    ['a document', (name) => docPath('db', name), (name) => ['db', ...(/^_(?:design|local)\//.test(name) ? [name.slice(0, name.indexOf('/')), name.slice(name.indexOf('/') + 1)] : [name])]],
    ['a design document', (name) => designPath('db', name), (name) => ['db', '_design', name]],
    ['a view', (name) => path`db/_design/${name}/_view/${name}`, (name) => ['db', '_design', name, '_view', name]],
    ['a search index', (name) => path`db/_design/${name}/_nouveau/${name}`, (name) => ['db', '_design', name, '_nouveau', name]],
    ['a Mango index', (name) => path`db/_index/${name}/json/${name}`, (name) => ['db', '_index', name, 'json', name]],
    ['an attachment', (name) => attachmentPath('db', 'doc', name), (name) => ['db', 'doc', name]],
    ['an attachment of a document', (name) => attachmentPath('db', `d${name}`, 'a'), (name) => ['db', `d${name}`, 'a']],
    ['a user', (name) => userPath(name), (name) => ['_users', `org.couchdb.user:${name}`]],
    ['a key of the configuration', (name) => path`_node/_local/_config/${name}/${name}`, (name) => ['_node', '_local', '_config', name, name]],
  ];
  test.each(BUILDERS)('%s', (_, build, expected) => {
    for (const name of names) {
      let url: URL;
      try {
        url = new URL(address(build(name), base));
      } catch (error) {
        expect(error).toBeInstanceOf(NoAddress);
        // Only names are refused that a browser would drop from the path.
        expect(expected(name).some((part) => ['', '.', '..'].includes(part)), JSON.stringify(name)).toBe(true);
        continue;
      }
      expect([url.host, url.search, url.hash]).toEqual(['h:1', '', '']);
      const sent = url.pathname.slice('/prefix/'.length).split('/');
      expect(sent.length, JSON.stringify(name)).toBe(expected(name).length);
      // A lone surrogate cannot be decoded.
      if (/\p{Surrogate}/u.test(name)) continue;
      expect(sent.map(decodeURIComponent)).toEqual(expected(name));
    }
  });

  test('links within the console lead to the same names', () => {
    for (const name of names.filter((each) => each !== '' && !/\p{Surrogate}/u.test(each))) {
      expect(parseHash(new URL(`https://h/${href(['db', name, 'doc', name], { q: name })}`).hash)).toMatchObject({ path: ['db', name, 'doc', name] });
    }
  });

  test('queries keep values apart', () => {
    for (const name of names.filter((each) => each !== '' && !/\p{Surrogate}/u.test(each))) {
      const url = new URL(address(`db${query({ rev: name, x: 1 })}`, base));
      expect([url.pathname, url.hash, url.searchParams.get('rev'), url.searchParams.get('x')]).toEqual(['/prefix/db', '', name, '1']);
    }
  });

  test('names of the server are no documents', () => {
    for (const id of ['', '_security', '_all_docs', '_design/', '_local/', '_design']) expect(isDocumentId(id), id).toBe(false);
    for (const id of ['a', '_design/a', '_local/a', '..', 'a/_security']) expect(isDocumentId(id), id).toBe(true);
    expect(docPath('db', '_security')).toBe('db/%5Fsecurity');
  });

  test('no other function builds paths', () => {
    for (const [file, text] of Object.entries(SOURCES)) {
      if (file.endsWith('/paths.ts') || file.endsWith('.test.ts')) continue;
      expect(text.includes('encodeURIComponent'), file).toBe(false);
      // Finds names in template strings that are not tagged with `path`.
      for (const [whole] of text.matchAll(/(?:send\('\w+', |(?<!\.)\b(?:get|post|put)(?:<[^`]*>)?\(|path: )`[^`]*`/g)) {
        const inner = [...whole.matchAll(/\$\{([^}]*)/g)].map(([, code]) => code ?? '');
        expect(inner.every((code) => /^(?:query\(|range$|partition\.path$|segment\(|path|designPath\(|docPath\(|ROOT|at$|pathOf|attachmentPath\(|userPath\(|near|BYTES|bytes)/.test(code)), `${file}: ${whole}`).toBe(true);
      }
    }
  });
});

const SOURCES = import.meta.glob<string>('../**/*.{ts,tsx}', { query: '?raw', import: 'default', eager: true });
