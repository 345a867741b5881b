import { describe, expect, test } from 'vitest';
import { add, converted, isNumber, move, remove, rename, setValue, typeOf } from './form.ts';
import { format, parse } from './text.ts';

const DOC = '{"_id":"a","n":12345678901234567890,"price":1.50,"lines":[{"sku":"x"},{"sku":"y"}],"ok":true,"no":null}';

describe('a form edits the text of a document', () => {
  test('only the edited value changes', () => {
    expect(setValue(DOC, [2], '2.0')).toBe(DOC.replace('1.50', '2.0'));
    expect(setValue(DOC, [3, 1, 0], '"z"')).toBe(DOC.replace('"y"', '"z"'));
    expect(setValue('{ "a" : 1,\n"b":2 }', [0], '3')).toBe('{ "a" : 3,\n"b":2 }');
  });

  test('members are added, renamed and removed', () => {
    expect(add(DOC, [], 'new', 'array')).toBe(DOC.replace('"no":null', '"no":null,"new":[]'));
    expect(add(DOC, [3], '', 'object')).toBe(DOC.replace('{"sku":"y"}', '{"sku":"y"},{}'));
    expect(rename(DOC, [3, 0, 0], 'a"b')).toBe(DOC.replace('"sku":"x"', '"a\\"b":"x"'));
    expect(remove(DOC, [1])).toBe(DOC.replace('"n":12345678901234567890,', ''));
    expect(remove('{"a":1}', [0])).toBe('{}');
  });

  test('items are moved within their array', () => {
    expect(move(DOC, [3, 0], 1)).toBe(DOC.replace('{"sku":"x"},{"sku":"y"}', '{"sku":"y"},{"sku":"x"}'));
    expect(move(DOC, [3, 0], -1)).toBe(DOC);
    expect(move(DOC, [3, 1], 1)).toBe(DOC);
  });

  test('a formatted text stays formatted, and other texts keep their white space', () => {
    expect(add(format(DOC), [], 'm', 'object')).toBe(format(add(DOC, [], 'm', 'object')));
    expect(setValue(format(DOC), [3], '[1,2]')).toBe(format(setValue(DOC, [3], '[1,2]')));
    expect(remove('{  "a" : 1, "b":2 } ', [0])).toBe('{ "b":2 } ');
    expect(add('{\n "a": 1\n}', [], 'b', 'null')).toBe('{\n "a": 1,\n "b": null\n}');
    expect(rename('{ "a\\"" :1}', [0], '$&')).toBe('{ "$&" :1}');
  });

  test('a duplicate name is edited by position', () => {
    expect(setValue('{"a":1,"a":2}', [0], '3')).toBe('{"a":3,"a":2}');
    expect(() => setValue('{"a":1}', [4], '3')).toThrow('no longer exists');
  });

  test.each([
    ['"5"', 'number', '5'], ['"x"', 'number', '0'], ['1.50', 'string', '"1.50"'], ['"true"', 'boolean', 'true'], ['"no"', 'boolean', 'false'], ['[1, 2]', 'string', '"[1,2]"'],
    ['"[1,2]"', 'array', '[1,2]'], ['"a"', 'array', '["a"]'], ['{"a":1}', 'array', '[{"a":1}]'], ['"{\\"a\\":1}"', 'object', '{"a":1}'], ['7', 'object', '{}'], ['true', 'null', 'null'], ['1.0', 'number', '1.0'],
  ] as const)('%s as %s is %s', (from, to, expected) => {
    const result = converted(from, parse(from), to);
    expect(result).toBe(expected);
    expect(typeOf(result, parse(result))).toBe(to);
  });

  test('numbers are those of JSON', () => {
    expect(['0', '-1.50', '1e9', '12345678901234567890'].map(isNumber)).toEqual([true, true, true, true]);
    expect(['', '1.', '01', '+1', 'NaN', '"1"', '1 2'].map(isNumber)).toEqual([false, false, false, false, false, false, false]);
  });
});
