/** Formatting of numbers, sizes and times. */
const UNITS = ['B', 'KB', 'MB', 'GB', 'TB', 'PB'];

export function bytes(count: number | undefined | null): string {
  if (count === undefined || count === null || !Number.isFinite(count)) return '–';
  let unit = 0;
  let value = count;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 9.95 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit] ?? ''}`;
}

export function number(count: number | undefined | null): string {
  return count === undefined || count === null ? '–' : count.toLocaleString('en');
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : many}`;
}

export function short(count: number): string {
  return Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 }).format(count);
}

export function duration(seconds: number | undefined | null): string {
  if (seconds === undefined || seconds === null || !Number.isFinite(seconds)) return '–';
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129_600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}

export function millis(ms: number): string {
  return ms < 10 ? `${ms.toFixed(1)} ms` : ms < 2000 ? `${Math.round(ms)} ms` : duration(ms / 1000);
}

export function ago(time: Date, now = Date.now()): string {
  const seconds = Math.round((now - time.getTime()) / 1000);
  return seconds < 5 ? 'just now' : `${duration(seconds)} ago`;
}

/** Masks the password in a URL. */
export function withoutPassword(url: string): string {
  return url.replace(/^(\w+:\/\/[^/:@]+):[^@/]*@/, '$1:***@');
}
