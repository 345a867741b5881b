import { expect, test } from 'vitest';
import { plotsOf } from './history.ts';

test('counters become rates, and a restart leaves a gap', () => {
  const names = ['requests', 'request_time_p50', 'resident_bytes'];
  const { requests, latency, memory, errors } = plotsOf({ interval_ms: 60_000, names, samples: [[60_000, 100, 1.5, 10], [120_000, 700, 2, 20], [180_000, 5, 3, 30]] });
  expect(requests.data()).toEqual([[60, 120, 180], [null, 10, null]]);
  expect(latency.data()[1]).toEqual([1.5, 2, 3]);
  expect(memory.data()[1]).toEqual([10, 20, 30]);
  expect(errors.data()[1]).toEqual([null, null, null]);
});

test('without samples the plots have no points', () => {
  expect(plotsOf({ interval_ms: 60_000, names: [], samples: [] }).requests.data()).toEqual([[], []]);
});
