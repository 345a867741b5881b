import { describe, expect, test } from 'vitest';
import { effect, namesOf, refusal, type Change } from './bulk.ts';

const DOC = '{"_id":"a","_rev":"1-x","n":1.50,"a":{"b":[1]},"s":"t"}';
const change = (kind: Change['kind'], field: string, value = ''): Change => ({ kind, field, value });

describe('a change of many documents', () => {
  test('sets values as JSON or as strings', () => {
    expect(effect(DOC, change('set', 'n', '2.0'))).toEqual({ kind: 'changed', after: DOC.replace('1.50', '2.0'), old: '1.50', next: '2.0' });
    expect(effect(DOC, change('set', 's', 'two words'))).toMatchObject({ next: '"two words"' });
    expect(effect(DOC, change('set', 's', ''))).toMatchObject({ next: '""' });
    expect(effect(DOC, change('set', 'a.c', 'true'))).toMatchObject({ old: undefined, after: DOC.replace('{"b"', '{"c":true,"b"') });
    expect(effect(DOC, change('set', 'n', '1.50'))).toEqual({ kind: 'same' });
  });

  test('does not replace a value of another type by an object', () => {
    expect(effect(DOC, change('set', 's.x', '1'))).toEqual({ kind: 'skipped', reason: 's is no object' });
    expect(effect(DOC, change('remove', 'a.b.c'))).toEqual({ kind: 'skipped', reason: 'a.b is no object' });
  });

  test('removes and renames', () => {
    expect(effect(DOC, change('remove', 'a.b'))).toMatchObject({ after: DOC.replace('"b":[1]', ''), old: '[1]' });
    expect(effect(DOC, change('remove', 'zzz'))).toEqual({ kind: 'same' });
    const renamed = effect(DOC, change('rename', 'n', 'price'));
    expect(JSON.parse(renamed.kind === 'changed' ? renamed.after : '')).toEqual({ _id: 'a', _rev: '1-x', price: 1.5, a: { b: [1] }, s: 't' });
    expect(renamed.kind === 'changed' && renamed.after.includes('1.50')).toBe(true);
    expect(effect(DOC, change('rename', 'n', 's'))).toEqual({ kind: 'skipped', reason: 's exists already' });
    expect(effect(DOC, change('rename', 'n', 'n'))).toEqual({ kind: 'same' });
  });

  test('names may contain escaped dots', () => {
    expect(namesOf('a.b')).toEqual(['a', 'b']);
    expect(namesOf('a\\.b.c')).toEqual(['a.b', 'c']);
    expect([namesOf(''), namesOf('a.'), namesOf('.a'), namesOf('a..b')]).toEqual([[''], ['a', ''], ['', 'a'], ['a', '', 'b']]);
  });

  test('reserved members are refused', () => {
    expect([change('set', '_rev', '1'), change('rename', 'a', '_x'), change('remove', ''), change('rename', 'a', '')].map(refusal).map(Boolean)).toEqual([true, true, true, true]);
    expect([change('set', 'a._b', '1'), change('rename', 'a.b', '_x')].map(refusal)).toEqual([undefined, undefined]);
  });
});
