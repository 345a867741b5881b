import { describe, expect, test } from 'vitest';
import { readersOf, withReaders } from './readers.ts';
import { format } from './text.ts';

const DOC = '{"_id":"a","_access":["ann","family"],"n":12345678901234567890,"price":1.50}';

describe('the readers of a document', () => {
  test('are the names in its list', () => {
    expect(readersOf(DOC)).toEqual(['ann', 'family']);
    expect(readersOf('{"_id":"a"}')).toEqual([]);
    expect(readersOf('{"_access":[]}')).toEqual([]);
    expect(readersOf('{"_access":["\\u00fc"]}')).toEqual(['ü']);
  });

  test('are unknown if the list or the text is malformed', () => {
    for (const text of ['', '{', '[]', '{"_access":"ann"}', '{"_access":null}', '{"_access":["ann",1]}']) expect(readersOf(text), text).toBeUndefined();
  });

  test('are replaced without a change of other members', () => {
    expect(withReaders(DOC, ['bob'])).toBe(DOC.replace('["ann","family"]', '["bob"]'));
    expect(withReaders('{"n":1.50}', ['a"b'])).toBe('{"n":1.50,"_access":["a\\"b"]}');
    expect(withReaders('{}', ['ann'])).toBe(format('{"_access":["ann"]}'));
    expect(withReaders(format(DOC), ['bob'])).toBe(format(withReaders(DOC, ['bob'])));
  });

  test('are administrators only without a list', () => {
    expect(withReaders(DOC, [])).toBe(DOC.replace('"_access":["ann","family"],', ''));
    expect(withReaders('{"n":1}', [])).toBe('{"n":1}');
    expect(withReaders('{"_access":["ann"]}', [])).toBe('{}');
  });
});
