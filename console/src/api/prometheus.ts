/** Metrics in the text format of Prometheus, and rates of counters between two samples. */
export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

export function readMetrics(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split('\n')) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/.exec(line);
    if (!found) continue;
    const labels: Record<string, string> = {};
    for (const [, name = '', value = ''] of (found[2] ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    samples.push({ name: found[1] ?? '', labels, value: Number(found[3]) });
  }
  return samples;
}

/** Returns the sum of the samples with this name and matching labels, or undefined if no sample matches. */
export function total(samples: Sample[], name: string, fits: (labels: Record<string, string>) => boolean = () => true): number | undefined {
  const found = samples.filter((sample) => sample.name === name && fits(sample.labels));
  return found.length === 0 ? undefined : found.reduce((sum, sample) => sum + sample.value, 0);
}

/** Points of a plot, of which the newest `max` are kept. */
export class Series {
  readonly times: number[] = [];
  readonly values: (number | null)[][];

  constructor(readonly names: string[], private readonly max: number) {
    this.values = names.map(() => []);
  }

  push(time: number, values: (number | undefined)[]): void {
    this.times.push(time);
    this.values.forEach((list, index) => list.push(values[index] ?? null));
    if (this.times.length > this.max) {
      this.times.shift();
      for (const list of this.values) list.shift();
    }
  }

  data(): [number[], ...(number | null)[][]] {
    return [[...this.times], ...this.values.map((list) => [...list])];
  }
}

/** Returns the increase per second between two samples, or undefined if the counter was reset by a restart. */
export function rate(before: number | undefined, now: number | undefined, seconds: number): number | undefined {
  if (before === undefined || now === undefined || now < before || seconds <= 0) return undefined;
  return (now - before) / seconds;
}
