export interface Line {
  kind: 'same' | 'left' | 'right';
  text: string;
}

/** Maximum number of lines that are compared. Longer sections are reported as replaced, because the comparison takes quadratic time. */
const LINES_MAX = 3000;

export function diff(left: string, right: string): Line[] {
  const a = left.split('\n');
  const b = right.split('\n');
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const same = (text: string): Line => ({ kind: 'same', text });
  return [
    ...a.slice(0, head).map(same),
    ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...a.slice(a.length - tail).map(same),
  ];
}

/** Compares lines by their longest common subsequence. */
function middle(a: string[], b: string[]): Line[] {
  const left = (text: string): Line => ({ kind: 'left', text });
  const right = (text: string): Line => ({ kind: 'right', text });
  if (a.length === 0 || b.length === 0 || a.length > LINES_MAX || b.length > LINES_MAX) return [...a.map(left), ...b.map(right)];
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  const at = (i: number, j: number) => lengths[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: 'same', text: a[i] ?? '' });
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && at(i + 1, j) >= at(i, j + 1))) lines.push(left(a[i++] ?? ''));
    else lines.push(right(b[j++] ?? ''));
  }
  return lines;
}

/** Returns rows for a view side by side. Removed lines are paired with the added lines that follow them. */
export function pairs(lines: Line[]): [Line | undefined, Line | undefined][] {
  const rows: [Line | undefined, Line | undefined][] = [];
  let lefts: Line[] = [];
  let rights: Line[] = [];
  const flush = () => {
    for (let index = 0; index < Math.max(lefts.length, rights.length); index += 1) rows.push([lefts[index], rights[index]]);
    lefts = [];
    rights = [];
  };
  for (const line of lines) {
    if (line.kind === 'left') lefts.push(line);
    else if (line.kind === 'right') rights.push(line);
    else {
      flush();
      rows.push([line, line]);
    }
  }
  flush();
  return rows;
}
