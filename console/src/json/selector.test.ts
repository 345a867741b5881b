import { describe, expect, test } from 'vitest';
import { conditionsOf, limitOf, orderOf, withCondition, withLimit, withOrder, withoutCondition } from './selector.ts';

const shortOf = (query: string) => conditionsOf(query)?.map(({ field, operator, value }) => `${field} ${operator} ${value}`);

describe('conditions of a query', () => {
  test('are read', () => {
    expect(shortOf('{"selector": {"a": 1.50, "b": {"$gt": 1, "$lt": 3}, "c": {"d": 1}, "$or": [{"x": 1}]}}')).toEqual(['a $eq 1.50', 'b $gt 1', 'b $lt 3', 'c $eq {"d":1}', '$or  [{"x":1}]']);
    expect(shortOf('{"selector": {"_id": {"$gt": null}}}')).toEqual([]);
    expect(shortOf('{"limit": 3}')).toEqual([]);
    expect(shortOf('{"selector": {')).toBeUndefined();
  });

  test('are removed one by one', () => {
    const query = '{"selector": {"a": 12345678901234567890, "b": {"$gt": 1, "$lt": 3.0}}}';
    const [a, gt, lt] = conditionsOf(query) ?? [];
    if (!a || !gt || !lt) throw new Error('three conditions');
    const without = withoutCondition(query, gt);
    expect(shortOf(without)).toEqual(['a $eq 12345678901234567890', 'b $lt 3.0']);
    expect(shortOf(withoutCondition(withoutCondition(without, lt), a))).toEqual([]);
    expect(shortOf(withCondition(without, 'b', '$lt', '4'))).toEqual(['a $eq 12345678901234567890', 'b $lt 4']);
  });
});

test('the order and the limit of a query', () => {
  const query = '{"selector": {"a": 1}}';
  expect([orderOf(query), limitOf(query)]).toEqual([{ field: '', descending: false }, '25']);
  const sorted = withLimit(withOrder(query, { field: 'a', descending: true }), '100');
  expect([orderOf(sorted), limitOf(sorted)]).toEqual([{ field: 'a', descending: true }, '100']);
  expect(orderOf(withOrder(sorted, { field: '', descending: true }))).toEqual({ field: '', descending: false });
  expect(orderOf('{"sort": ["a"]}')).toEqual({ field: 'a', descending: false });
  expect(orderOf('{"sort": ["a", {"b": "desc"}]}')).toBeUndefined();
});
