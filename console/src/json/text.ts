/**
 * JSON as text. Documents of users are never converted to values and back, because that would round numbers and drop members with
 * duplicate names. `parse` returns the position of each value, and the other functions work on these positions.
 */
export type Kind = 'object' | 'array' | 'string' | 'number' | 'literal';

export interface Node {
  kind: Kind;
  start: number;
  end: number;
  /** Names of the members of an object, with their values in `children`. */
  keys?: string[];
  children?: Node[];
}

export class JsonError extends Error {
  constructor(message: string, readonly at: number) {
    super(message);
  }
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const SPACE = /[ \t\n\r]*/y;
const LITERALS = ['true', 'false', 'null'];

/** Maximum depth of nesting. The limit of servers is lower. */
const DEPTH_MAX = 1000;

export function parse(text: string): Node {
  const parser = new Parser(text);
  const node = parser.value(0);
  parser.space();
  if (parser.at < text.length) parser.fail('Unexpected text after the value');
  return node;
}

class Parser {
  at = 0;

  constructor(private readonly text: string) {}

  fail(message: string): never {
    throw new JsonError(message, Math.min(this.at, this.text.length));
  }

  space(): void {
    SPACE.lastIndex = this.at;
    SPACE.test(this.text);
    this.at = SPACE.lastIndex;
  }

  value(depth: number): Node {
    this.space();
    if (depth > DEPTH_MAX) this.fail('Values are nested too deeply');
    const start = this.at;
    const first = this.text[start];
    if (first === '{') return this.object(depth);
    if (first === '[') return this.array(depth);
    if (first === '"') {
      this.string();
      return { kind: 'string', start, end: this.at };
    }
    NUMBER.lastIndex = start;
    if (NUMBER.test(this.text)) {
      this.at = NUMBER.lastIndex;
      return { kind: 'number', start, end: this.at };
    }
    const literal = LITERALS.find((word) => this.text.startsWith(word, start));
    if (literal === undefined) this.fail(first === undefined ? 'A value is missing at the end' : 'A value is expected here');
    this.at += literal.length;
    return { kind: 'literal', start, end: this.at };
  }

  private string(): void {
    STRING.lastIndex = this.at;
    let closed: boolean;
    try {
      closed = STRING.test(this.text);
    } catch {
      // The regular expression exhausts its stack on strings of many megabytes.
      closed = this.longString();
      return closed ? undefined : this.fail('The string is not closed, or has an invalid escape');
    }
    if (!closed) this.fail('The string is not closed, or has an invalid escape');
    this.at = STRING.lastIndex;
  }

  private longString(): boolean {
    let at = this.at + 1;
    while (at < this.text.length) {
      const code = this.text.charCodeAt(at);
      if (code === 34) {
        this.at = at + 1;
        return true;
      }
      if (code < 32) return false;
      at += code === 92 ? 2 : 1;
    }
    return false;
  }

  private object(depth: number): Node {
    const start = this.at++;
    const keys: string[] = [];
    const children: Node[] = [];
    this.space();
    while (this.text[this.at] !== '}') {
      if (keys.length > 0) this.comma('}');
      this.space();
      const from = this.at;
      if (this.text[from] !== '"') this.fail('The name of a member is expected here, in double quotes');
      this.string();
      keys.push(JSON.parse(this.text.slice(from, this.at)) as string);
      this.space();
      if (this.text[this.at] !== ':') this.fail('A colon is expected after the name');
      this.at += 1;
      children.push(this.value(depth + 1));
      this.space();
    }
    this.at += 1;
    return { kind: 'object', start, end: this.at, keys, children };
  }

  private array(depth: number): Node {
    const start = this.at++;
    const children: Node[] = [];
    this.space();
    while (this.text[this.at] !== ']') {
      if (children.length > 0) this.comma(']');
      children.push(this.value(depth + 1));
      this.space();
    }
    this.at += 1;
    return { kind: 'array', start, end: this.at, children };
  }

  private comma(close: string): void {
    if (this.text[this.at] !== ',') this.fail(`A comma or ${close} is expected here`);
    this.at += 1;
    this.space();
    if (this.text[this.at] === close) this.fail('A value is expected after the comma');
  }
}

export function raw(text: string, node: Node): string {
  return text.slice(node.start, node.end);
}

/** Returns the last member with this name, which overrides earlier ones. */
export function member(node: Node | undefined, key: string): Node | undefined {
  const at = node?.keys?.lastIndexOf(key) ?? -1;
  return at < 0 ? undefined : node?.children?.[at];
}

/** Returns the content of a string, or the text of another value. */
export function plain(text: string, node: Node): string {
  return node.kind === 'string' ? (JSON.parse(raw(text, node)) as string) : raw(text, node);
}

export function stringOf(text: string, node: Node | undefined): string | undefined {
  return node?.kind === 'string' ? (JSON.parse(raw(text, node)) as string) : undefined;
}

/** Returns the value indented. Numbers and strings keep their text. */
export function format(text: string, node: Node = parse(text), indent = ''): string {
  const children = node.children;
  if (children === undefined) return raw(text, node);
  const [open, close] = node.kind === 'object' ? '{}' : '[]';
  if (children.length === 0) return `${open}${close}`;
  const inner = `${indent}  `;
  const lines = children.map((child, index) => {
    const name = node.keys ? `${JSON.stringify(node.keys[index])}: ` : '';
    return inner + name + format(text, child, inner);
  });
  return `${open}\n${lines.join(',\n')}\n${indent}${close}`;
}

export function compact(text: string, node: Node = parse(text)): string {
  const children = node.children;
  if (children === undefined) return raw(text, node);
  const parts = children.map((child, index) => (node.keys ? `${JSON.stringify(node.keys[index])}:` : '') + compact(text, child));
  return node.kind === 'object' ? `{${parts.join(',')}}` : `[${parts.join(',')}]`;
}

/** Returns an object with members set (JSON text) or removed (`undefined`). New members come first. */
export function withMembers(text: string, changes: Record<string, string | undefined>): string {
  const node = parse(text);
  if (node.kind !== 'object') throw new JsonError('A document must be an object: it starts with {', node.start);
  const kept: string[] = [];
  const used = new Set<string>();
  node.keys?.forEach((key, index) => {
    const child = node.children?.[index];
    if (!child) return;
    if (Object.hasOwn(changes, key)) {
      const value = changes[key];
      if (value !== undefined && !used.has(key)) kept.push(`${JSON.stringify(key)}:${value}`);
      used.add(key);
    } else kept.push(`${JSON.stringify(key)}:${raw(text, child)}`);
  });
  const added = Object.entries(changes).filter(([key, value]) => value !== undefined && !used.has(key));
  return `{${[...added.map(([key, value]) => `${JSON.stringify(key)}:${value as string}`), ...kept].join(',')}}`;
}

/** Returns the line and column of an offset, both from 1. */
export function positionOf(text: string, at: number): { line: number; column: number } {
  const before = text.slice(0, at);
  const line = before.split('\n').length;
  return { line, column: at - before.lastIndexOf('\n') };
}
