import { describe, expect, test } from 'vitest';
import { diff, pairs } from './diff.ts';
import { getAt, setAt } from './edit.ts';
import { csvRecords, guess, readFile } from './import.ts';
import { documentProblems, jsonProblems } from './problems.ts';
import { columns, fields, readDocs, readRows } from './rows.ts';
import { JsonError, compact, format, parse, positionOf, withMembers } from './text.ts';

describe('JSON keeps its text', () => {
  const texts = ['0', '-0', '1.50', '1e2', '12345678901234567890', '0.1000000000000000055511151231257827', '"\\u00e9\\/"', '[]', '{}', 'true', 'null', '[1.0,{"a":[]},"x"]', '{"a":1,"a":2}'];
  test.each(texts)('%s', (text) => {
    expect(compact(text)).toBe(text);
    expect(compact(format(text))).toBe(text);
  });

  test('is indented', () => {
    expect(format('{"a":[1.0,{}],"b":{"c":"d"}}')).toBe('{\n  "a": [\n    1.0,\n    {}\n  ],\n  "b": {\n    "c": "d"\n  }\n}');
  });

  test.each([
    ['', 0], ['{', 1], ['{"a"}', 4], ['{"a":}', 5], ['{"a":1,}', 7], ['[1,]', 3], ['[1 2]', 3], ['"a', 0], ['"\n"', 0], ['01', 1], ['nul', 0], ['{a:1}', 1], ['1 1', 2], ["{'a':1}", 1], ['"\\x"', 0],
  ])('%j is refused at %i', (text, at) => {
    let found: unknown;
    try {
      parse(text);
    } catch (error) {
      found = error;
    }
    expect(found).toBeInstanceOf(JsonError);
    expect((found as JsonError).at).toBe(at);
  });

  test('accepts what JSON.parse accepts, and nothing else', () => {
    let seed = 7;
    const next = (below: number) => {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      return seed % below;
    };
    const alphabet = ['{', '}', '[', ']', ',', ':', '"', 'a', '\\', '1', '0', '-', '.', 'e', ' ', 'true', 'null', '"x"', '\n'];
    for (let round = 0; round < 20_000; round += 1) {
      const text = Array.from({ length: next(9) }, () => alphabet[next(alphabet.length)]).join('');
      const accepts = (read: (text: string) => unknown) => {
        try {
          read(text);
          return true;
        } catch {
          return false;
        }
      };
      expect(accepts(parse), JSON.stringify(text)).toBe(accepts(JSON.parse));
    }
  });

  test('depth is limited, and length is not', () => {
    expect(() => parse('['.repeat(5000))).toThrow('too deep');
    expect(parse(`"${'x'.repeat(6_000_000)}"`).kind).toBe('string');
    expect(parse(`"${'\\n'.repeat(3_000_000)}"`).kind).toBe('string');
  });

  test('positions are converted to line and column', () => {
    expect(positionOf('a\nbc', 3)).toEqual({ line: 2, column: 2 });
    expect(positionOf('abc', 0)).toEqual({ line: 1, column: 1 });
  });
});

describe('members', () => {
  test('are set, added and removed', () => {
    expect(withMembers('{"a":1.0,"b":2}', { b: '3', _rev: '"1-a"' })).toBe('{"_rev":"1-a","a":1.0,"b":3}');
    expect(withMembers('{"a":1.0,"b":2}', { a: undefined })).toBe('{"b":2}');
    expect(withMembers('{"a":1,"a":2}', { a: '3' })).toBe('{"a":3}');
    expect(withMembers('{"__proto__":1}', { x: '1' })).toBe('{"x":1,"__proto__":1}');
    expect(() => withMembers('[]', {})).toThrow('object');
  });

  test('at paths', () => {
    const text = '{"views":{"a":{"map":"m"}},"n":1.50}';
    expect(setAt(text, ['views', 'b', 'map'], '"x"')).toBe('{"views":{"b":{"map":"x"},"a":{"map":"m"}},"n":1.50}');
    expect(setAt(text, ['views', 'a'], undefined)).toBe('{"views":{},"n":1.50}');
    expect(getAt(text, ['views', 'a', 'map'])).toBe('"m"');
    expect(getAt(text, ['views', 'none'])).toBeUndefined();
  });

  test('with problems are marked by an editor', () => {
    expect(jsonProblems('{"a":1}')).toEqual([]);
    expect(jsonProblems('{"a":').map(({ from }) => from)).toEqual([5]);
    expect(documentProblems('[]')[0]?.message).toContain('object');
    expect(documentProblems('{"_id":"a","_x":1}')[0]?.message).toContain('_x');
    expect(documentProblems('{"a":1,"a":2}')[0]?.message).toContain('twice');
    expect(documentProblems('{"_id":"a","_rev":"1-a","_attachments":{}}')).toEqual([]);
  });
});

describe('answers', () => {
  test('rows keep numbers', () => {
    const { rows, total, offset } = readRows('{"total_rows":3,"offset":1,"rows":[\n{"id":"a","key":[1.0,"x"],"value":12345678901234567890,"doc":{"_id":"a","n":1.50}},{"key":"none","error":"not_found"}]}');
    expect([total, offset]).toEqual([3, 1]);
    expect(rows[0]).toEqual({ id: 'a', key: '[1.0,"x"]', value: '12345678901234567890', doc: '{"_id":"a","n":1.50}', error: undefined });
    expect(rows[1]).toEqual({ id: undefined, key: '"none"', value: 'null', doc: undefined, error: 'not_found' });
  });

  test('documents of a query', () => {
    const found = readDocs('{"docs":[{"a":1.0}],"bookmark":"b","warning":"w"}');
    expect(found).toEqual({ docs: ['{"a":1.0}'], bookmark: 'b', warning: 'w', stats: undefined });
  });

  test('columns are the most common members', () => {
    const docs = ['{"_id":"1","a":1,"b":2}', '{"b":3}', '{"b":1,"c":2}'].map(fields);
    expect(columns(docs, 2)).toEqual(['b', 'a']);
  });
});

const texts = (name: string, text: string) => readFile(name, text).docs.map((doc) => doc.text);

describe('files', () => {
  test('the format is detected', () => {
    expect(guess('a.csv', 'x')).toBe('CSV');
    expect(guess('a.json', '[1]')).toBe('JSON');
    expect(guess('a.json', '{"a":1}\n{"a":2}')).toBe('NDJSON');
    expect(guess('a.txt', '{\n"a":1}')).toBe('JSON');
    expect(guess('a.txt', 'a;b\n1;2')).toBe('CSV');
  });

  test('JSON arrays, docs, rows and single documents', () => {
    const docs = (text: string) => texts('a.json', text);
    expect(docs('[{"n":1.50},{"n":2}]')).toEqual(['{"n":1.50}', '{"n":2}']);
    expect(docs('{"docs":[{"a":1}]}')).toEqual(['{"a":1}']);
    expect(docs('{"rows":[{"id":"a","doc":{"a":1}},{"id":"b"}]}')).toEqual(['{"a":1}']);
    expect(docs('{"a":1}')).toEqual(['{"a":1}']);
    expect(readFile('a.json', '[1,{}]')).toEqual({ format: 'JSON', docs: [{ line: 1, text: '{}' }], problems: [{ line: 1, id: undefined, reason: 'A document must be an object.' }] });
    expect(readFile('a.json', '[\n{"a":}]').problems).toMatchObject([{ line: 2, reason: expect.stringContaining('A value is expected here, at column 6.') as string }]);
    expect(readFile('a.json', '[\n{"a":1},\n\n2, {"b":1}]')).toMatchObject({ docs: [{ line: 2 }, { line: 4 }], problems: [{ line: 4 }] });
  });

  test('NDJSON line by line', () => {
    expect(readFile('a.ndjson', '{"a":1e2}\r\n\r\n[]\nx{"_id":"b"')).toEqual({ format: 'NDJSON', docs: [{ line: 1, text: '{"a":1e2}' }], problems: [{ line: 3, id: undefined, reason: 'A document must be an object.' }, { line: 4, id: 'b', reason: 'A value is expected here, at column 1.' }] });
    expect(readFile('a.ndjson', '\uFEFF{"_id":"a"}\n{"_id":"b\\u0041", 1}')).toMatchObject({ docs: [{ line: 1 }], problems: [{ line: 2, id: 'bA' }] });
    // Also if the first line is invalid, and without the extension of NDJSON.
    for (const name of ['a.json', 'a.txt']) expect(readFile(name, '{"a":\n{"b":1}\n{"c":1}')).toMatchObject({ format: 'NDJSON', docs: [{ line: 2 }, { line: 3 }], problems: [{ line: 1 }] });
    // Each line is a document, a problem or empty.
    const many = Array.from({ length: 5000 }, (_, index) => (index % 7 === 0 ? 'broken' : `{"n":${index}}`));
    const found = readFile('a.ndjson', many.join('\n'));
    expect([...found.docs, ...found.problems].map(({ line }) => line).sort((a, b) => a - b)).toEqual(many.map((_, index) => index + 1));
  });

  test('CSV with quotes, numbers and other separators', () => {
    expect(texts('a.csv', '\uFEFF_id,n,s,list\n007,1.50,"a ""b"", c",[1.0]\n')).toEqual(['{"_id":"007","n":1.50,"s":"a \\"b\\", c","list":[1.0]}']);
    expect(texts('a.csv', 'a;b\n1;"x\ny"\n2;')).toEqual(['{"a":1,"b":"x\\ny"}', '{"a":2}']);
    expect(readFile('a.csv', 'a,b\n1\n1,2,3\n"x\ny",4')).toEqual({ format: 'CSV', docs: [{ line: 2, text: '{"a":1}' }, { line: 4, text: '{"a":"x\\ny","b":4}' }], problems: [{ line: 3, id: undefined, reason: 'The row has 3 fields, and the first row names 2.' }] });
    expect(readFile('a.csv', 'a,b\n1,"2\n3,4\n')).toMatchObject({ docs: [{ line: 3, text: '{"a":3,"b":4}' }], problems: [{ line: 2 }] });
    expect(texts('a.csv', 'a\n01\n1e5\ntrue\n[oops')).toEqual(['{"a":"01"}', '{"a":1e5}', '{"a":true}', '{"a":"[oops"}']);
    expect(csvRecords('a,b,\n"x', ',')).toEqual({ records: [['a', 'b', '']], lines: [1], unclosed: [2] });
  });
});

describe('differences', () => {
  const lines = (left: string, right: string) => diff(left, right).map(({ kind, text }) => `${{ same: ' ', left: '-', right: '+' }[kind]}${text}`);
  test('of lines', () => {
    expect(lines('a\nb\nc', 'a\nx\nc')).toEqual([' a', '-b', '+x', ' c']);
    expect(lines('a', 'a')).toEqual([' a']);
    expect(lines('a\nb', 'b\na\nb')).toEqual(['+b', ' a', ' b']);
    expect(lines('1\n2\n3\n4', '1\n3\n4\n5')).toEqual([' 1', '-2', ' 3', ' 4', '+5']);
  });

  test('are paired side by side', () => {
    const rows = pairs(diff('a\nb\nc', 'a\nx\ny\nc'));
    expect(rows.map(([left, right]) => [left?.text, right?.text])).toEqual([['a', 'a'], ['b', 'x'], [undefined, 'y'], ['c', 'c']]);
  });

  test('of large texts are computed within the limit', () => {
    const many = (from: number) => Array.from({ length: 4000 }, (_, index) => String(index + from)).join('\n');
    expect(diff(many(0), many(10_000)).length).toBe(8000);
  });
});
