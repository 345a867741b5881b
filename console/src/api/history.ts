/** Plots of the samples that the server keeps for one day. */
import { Series, rate } from './prometheus.ts';

export interface History {
  interval_ms: number;
  names: string[];
  /** Each sample: milliseconds of the Unix epoch, then one number for each name. */
  samples: number[][];
}

export interface Plots {
  requests: Series;
  latency: Series;
  writes: Series;
  memory: Series;
  errors: Series;
  disk: Series;
}

/** Returns empty plots; each keeps the newest `points` points. */
export const plots = (points: number): Plots => ({
  requests: new Series(['Requests'], points),
  latency: new Series(['Median', '90 %', '99 %'], points),
  writes: new Series(['Documents written', 'Documents read'], points),
  memory: new Series(['Memory'], points),
  errors: new Series(['4xx', '5xx'], points),
  disk: new Series(['Data on disk'], points),
});

/** Converts samples into points. Counters become rates between two samples, so the first point has no rate. */
export function plotsOf({ names, samples }: History): Plots {
  const found = plots(samples.length);
  const at = (sample: number[] | undefined, name: string) => (names.includes(name) ? sample?.[names.indexOf(name) + 1] : undefined);
  let before: number[] | undefined;
  for (const sample of samples) {
    const time = (sample[0] ?? 0) / 1000;
    const seconds = before ? time - (before[0] ?? 0) / 1000 : 0;
    const each = (name: string) => rate(at(before, name), at(sample, name), seconds);
    found.requests.push(time, [each('requests')]);
    found.latency.push(time, ['request_time_p50', 'request_time_p90', 'request_time_p99'].map((name) => at(sample, name)));
    found.writes.push(time, [each('document_writes'), each('database_reads')]);
    found.memory.push(time, [at(sample, 'resident_bytes')]);
    found.errors.push(time, [each('responses_4xx'), each('responses_5xx')]);
    found.disk.push(time, [at(sample, 'disk_bytes')]);
    before = sample;
  }
  return found;
}
