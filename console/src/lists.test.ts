import { describe, expect, test } from 'vitest';
import { sortDatabases, type Info } from './api/databases.ts';
import { exportAs } from './api/export.ts';
import { withQuery, type StoredQuery } from './api/queries.ts';
import { fromFauxton } from './fauxton.ts';
import { addColumns, csvHead, csvRow } from './json/export.ts';
import { compareValues, sortedBy, type Row } from './json/rows.ts';
import { schemaOf } from './json/schema.ts';
import { conditionValue, withCondition } from './json/selector.ts';
import { typedValue } from './json/edit.ts';
import { maskedTask } from './pages/activity.tsx';
import { exportedKey } from './pages/config.tsx';
import type { Index } from './pages/indexes.tsx';
import { readAnalyzers, writeAnalyzers } from './pages/search-index.tsx';
import { splitSystem } from './pages/server.tsx';
import { fieldOf, indexFor } from './pages/sorted.tsx';
import { stringsOf } from './pages/string-editor.tsx';
import { parseHash } from './router.ts';
import { titleOf } from './titles.ts';
import { NO_PAGES, appendPage, prependPage } from './ui/find-pager.ts';

test('databases are sorted by figures, those without figures last', () => {
  const info = (docs: number): Info => ({ doc_count: docs, doc_del_count: 0, sizes: { file: docs * 10, external: docs, active: docs } });
  const figures = new Map<string, Info | undefined>([['a', info(2)], ['b', undefined], ['c', info(30)], ['d', info(4)]]);
  const names = ['a', 'b', 'c', 'd'];
  expect(sortDatabases(names, figures, 'name', true)).toEqual(['d', 'c', 'b', 'a']);
  expect(sortDatabases(names, figures, 'disk', true)).toEqual(['c', 'd', 'a', 'b']);
  expect(sortDatabases(names, figures, 'docs', false)).toEqual(['a', 'd', 'c', 'b']);
});

test('numbers of object storage are shown once', () => {
  const engine = { store_put_requests: 1234, store_request_errors: 0, store_sent_bytes: 2000, log_stalled_ms: 40, owned_groups: 6, commits: 7 };
  expect(splitSystem({ uptime: 1, engine })).toEqual({
    storage: [['Puts', '1,234'], ['Errors', '0'], ['Sent', '2.0 KB'], ['Lag', '40 ms'], ['Owned groups', '6']],
    rest: { uptime: 1, engine: { commits: 7 } },
  });
  for (const system of [{ uptime: 1, engine: { commits: 7 } }, { uptime: 1 }]) expect(splitSystem(system)).toEqual({ storage: undefined, rest: system });
});

test('values are sorted by type, then by value', () => {
  const values = ['{"a":1}', '"b"', '10', 'true', undefined, '9', 'null', '"a"', 'false', '[1]'];
  expect(values.toSorted(compareValues)).toEqual(['null', 'false', 'true', '9', '10', '"a"', '"b"', '[1]', '{"a":1}', undefined]);
});

test('sorted rows without a value are last in both directions', () => {
  const rows = ['2', undefined, '10', '[1,2]', '[1]', '{"a":2}', '{"a":10}'];
  const ascending = ['2', '10', '[1]', '[1,2]', '{"a":2}', '{"a":10}'];
  expect(sortedBy(rows, (row) => row, false)).toEqual([...ascending, undefined]);
  expect(sortedBy(rows, (row) => row, true)).toEqual([...ascending.toReversed(), undefined]);
});

test('an index sorts by its first field; partial indexes and those of another scope do not', () => {
  const index = (name: string, fields: string[], more: Partial<Index> = {}, partial = {}): Index => ({ ddoc: '_design/a', name, type: 'json', def: { fields: fields.map((field) => ({ [field]: 'asc' })), ...partial }, ...more });
  const indexes = [index('two', ['a', 'b']), index('one', ['a']), index('partial', ['c'], {}, { partial_filter_selector: {} }), index('text', ['d'], { type: 'text' }), index('part', ['e'], { partitioned: true }), index('second', ['b', 'f']), index('dot', ['g\\.h'])];
  const chosen = (name: string, isPartitioned = false) => indexFor(indexes, fieldOf(name), isPartitioned)?.name;
  expect([chosen('a'), chosen('c'), chosen('d'), chosen('e'), chosen('e', true), chosen('f'), chosen('g.h'), chosen('g')]).toEqual(['one', undefined, undefined, undefined, 'part', undefined, 'dot', undefined]);
});

test('pages by bookmark: a dropped page is loaded again with its bookmark', () => {
  const page = (name: string): Row[] => Array.from({ length: 1000 }, (_, index) => ({ id: `${name}${index}`, key: '', value: '', doc: undefined, error: undefined }));
  let state = NO_PAGES;
  for (const name of ['a', 'b', 'c', 'd']) state = appendPage(state, page(name), `after-${name}`, name === 'd');
  expect([state.first, state.rows.length, state.rows[0]?.id, state.shift, state.atFirst, state.atLast]).toEqual([1, 3000, 'b0', -1000, false, true]);
  expect(state.bookmarks[state.first - 1]).toBe(undefined);
  state = prependPage(state, page('a'));
  expect([state.first, state.rows.length, state.rows.at(-1)?.id, state.shift, state.atFirst, state.atLast]).toEqual([0, 3000, 'c999', 0, true, false]);
  expect(state.bookmarks[state.first + state.counts.length]).toBe('after-c');
  state = appendPage(state, page('d'), 'after-d', true);
  expect([state.bookmarks, state.rows.length]).toEqual([[undefined, 'after-a', 'after-b', 'after-c', 'after-d'], 3000]);
});

describe('exports', () => {
  test('a cell keeps numbers, quotes what needs it, and is empty for a missing member', () => {
    const object = '{"_id":"a","n":12345678901234567890,"t":"x, \\"y\\"","o":{"k":[1.0]},"e":null}';
    expect(csvRow(object, ['_id', 'n', 't', 'o', 'e', 'none'])).toBe('a,12345678901234567890,"x, ""y""","{""k"":[1.0]}",null,');
    const columns = new Set<string>();
    addColumns(columns, object);
    addColumns(columns, '{"z,":1}');
    expect(csvHead([...columns])).toBe('_id,n,t,o,e,"z,"');
  });

  async function* batches() {
    yield await Promise.resolve(['{"a":1.0}', '{\n"a":2}']);
    yield [];
    yield ['{"b":"x"}'];
  }
  test.each([['JSON', '[\n{"a":1.0},\n{"a":2},\n{"b":"x"}\n]\n'], ['NDJSON', '{"a":1.0}\n{"a":2}\n{"b":"x"}\n'], ['CSV', 'a,b\n1.0,\n2,\n,x\n']] as const)('%s', async (format, expected) => {
    const counts: number[] = [];
    const { file, count } = await exportAs(format, batches, new AbortController().signal, (each) => counts.push(each));
    expect([await file.text(), count, counts]).toEqual([expected, 3, [2, 3]]);
  });

  test.each([
    ['chttpd_auth', 'secret', 'hidden', '***'], ['chttpd_auth', 'secret', '', ''], ['admins', 'anna', '-pbkdf2-hidden,salt,10', '***'], ['jwt_keys', 'hmac:_default', 'hidden', '***'],
    ['backup', 'secret_access_key', 'hidden', '***'], ['storage', 'url', 'postgres://a:hidden@h/db', 'postgres://a:***@h/db'], ['log', 'level', 'info', 'info'],
    ['a', 'urls', 'http://a:hidden@h:1/x, http://h:2/y@z, s3://:hidden@h/?sslpassword=hidden&b=1', 'http://a:***@h:1/x, http://h:2/y@z, s3://:***@h/?sslpassword=***&b=1'],
  ])('the value of [%s] %s, %j, is exported as %j', (section, key, value, expected) => {
    expect(exportedKey({ section, key, value, setting: undefined })).toEqual({ section, key, value: expected });
  });

  test('a key that is not set is exported with its default', () => {
    const setting = { section: 'log', key: 'level', default: 'info', value: 'info', applies: 'at-once' as const, doc: 'The lowest level.' };
    expect(exportedKey({ section: 'log', key: 'level', value: undefined, setting })).toEqual({ section: 'log', key: 'level', value: 'info', default: 'info', applies: 'at-once', description: 'The lowest level.' });
  });

  test('the URLs of a task are exported without passwords', () => {
    const times = { started_on: 1, updated_on: 2 };
    expect(maskedTask({ type: 'replication', source: 'http://a:hidden@h/b', target: 'c', ...times })).toEqual({ type: 'replication', source: 'http://a:***@h/b', target: 'c', ...times });
    expect(maskedTask({ type: 'indexer', database: 'd', ...times })).toEqual({ type: 'indexer', database: 'd', ...times });
  });
});

test('a schema counts documents, types and examples', () => {
  const { documents, fields } = schemaOf(['{"_id":"a","n":1,"list":[{"x":1},{"x":"s"}]}', '{"_id":"b","n":null,"list":[]}', '{"_id":"c","_attachments":{"f":{}}}']);
  expect(documents).toBe(3);
  const of = (path: string) => fields.find((field) => field.path === path);
  expect(fields.map(({ path }) => path)).toEqual(['_id', 'n', 'list', 'list[]', 'list[].x']);
  expect([of('n')?.documents, [...(of('n')?.types ?? [])]]).toEqual([2, [['number', 1], ['null', 1]]]);
  expect([of('list[].x')?.documents, of('list[].x')?.examples]).toEqual([1, ['1', 's']]);
});

test('stored queries: saved before recent, the newest first, without duplicates', () => {
  let all: StoredQuery[] = [];
  for (const query of [{ text: '1' }, { text: '2' }, { text: '1' }, { text: '3', name: 'mine' }, { text: '4', name: 'mine' }]) all = withQuery(all, query);
  expect(all).toEqual([{ text: '4', name: 'mine' }, { text: '1' }, { text: '2' }]);
});

describe('analyzers of a search index', () => {
  test.each([
    ['nouveau', '{"default_analyzer":"english","field_analyzers":{"a":"keyword"},"index":"f"}'], ['nouveau', '{"index":"f"}'],
    ['indexes', '{"analyzer":"english","index":"f"}'], ['indexes', '{"analyzer":{"name":"perfield","default":"english","fields":{"a":"keyword"}},"index":"f"}'],
  ] as const)('%s %s is not modified by reading and writing', (kind, definition) => {
    expect(JSON.parse(writeAnalyzers(kind, definition, readAnalyzers(kind, definition)))).toEqual(JSON.parse(definition));
  });

  test('lines without an analyzer are ignored', () => {
    expect(writeAnalyzers('nouveau', '{"index":"f","x":1.0}', { main: 'standard', fields: 'a: keyword\nb:\nc' })).toBe('{"default_analyzer":"standard","field_analyzers":{"a":"keyword"},"index":"f","x":1.0}');
  });
});

test('conditions are written into a selector', () => {
  const start = '{"selector":{"_id":{"$gt":null}},"limit":25}';
  const once = withCondition(start, 'total', '$gte', conditionValue('$gte', '1.50'));
  expect(JSON.parse(once)).toEqual({ selector: { total: { $gte: 1.5 } }, limit: 25 });
  expect(once).toContain('1.50');
  expect(JSON.parse(withCondition(once, 'total', '$lt', '9'))).toEqual({ selector: { total: { $gte: 1.5, $lt: 9 } }, limit: 25 });
  expect(JSON.parse(withCondition('{"selector":{"a":"x"}}', 'a', '$ne', '"y"'))).toEqual({ selector: { a: { $eq: 'x', $ne: 'y' } } });
  expect([conditionValue('$in', 'a, 2'), conditionValue('$in', '[1]'), conditionValue('$in', '1'), conditionValue('$exists', ''), conditionValue('$eq', 'Oslo')]).toEqual(['["a",2]', '[1]', '[1]', 'true', '"Oslo"']);
});

test('a typed value remains a string or is read as JSON', () => {
  for (const [old, typed, expected] of [['"a"', '5', '"5"'], ['"a"', '', '""'], ['1', '1.50', '1.50'], ['1', 'x', '"x"'], ['1', '', undefined], [undefined, '[1.0]', '[1.0]']] as const) expect(typedValue(old, typed)).toBe(expected);
});

test('strings of a document, the longest first', () => {
  expect(stringsOf('{"_id":"abcdefgh","a":"xy","b":{"c":["1","123"]}}').map(({ path }) => path)).toEqual(['b.c[1]', 'a', 'b.c[0]']);
});

test('addresses of Fauxton may contain names with slashes, and other addresses are not translated', () => {
  expect(parseHash('#/database/a%2Fb/c%2Fd/conflicts')).toMatchObject({ path: ['db', 'a/b', 'doc', 'c/d'] });
  for (const path of [['databases'], ['db', 'x'], ['replication'], ['replication', 'new'], ['setup'], ['login'], []]) expect(fromFauxton(path, new URLSearchParams())).toBeUndefined();
});

test('each page has a title', () => {
  for (const [hash, title] of [['#/', 'Databases'], ['#/db/a', 'a'], ['#/db/a/doc/b', 'b'], ['#/db/a/view/d/v', 'd/v'], ['#/db/a/query', 'Query a'], ['#/db/a/none', 'Not found'], ['#/config/cors', 'CORS'], ['#/none', 'Not found']]) expect(titleOf(parseHash(hash ?? ''))).toBe(title);
});
