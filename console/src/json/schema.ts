/** The fields of documents: types, frequencies and examples. */
import { parse, plain, raw, type Node } from './text.ts';

export type FieldType = 'string' | 'number' | 'boolean' | 'null' | 'object' | 'array';

export interface FieldSummary {
  /** Members are joined by dots; `[]` denotes the elements of an array. */
  path: string;
  documents: number;
  types: Map<FieldType, number>;
  examples: string[];
}

const EXAMPLES_MAX = 3;
const EXAMPLE_CHARS = 60;
/** Maximum number of fields, because documents whose member names are data have an unbounded number. */
const FIELDS_MAX = 500;

export interface Schema {
  documents: number;
  fields: FieldSummary[];
  /** True if fields were omitted because of `FIELDS_MAX`. */
  isPartial: boolean;
}

function typeOf(text: string, node: Node): FieldType {
  if (node.kind !== 'literal') return node.kind;
  return raw(text, node) === 'null' ? 'null' : 'boolean';
}

export function schemaOf(docs: readonly string[]): Schema {
  const fields = new Map<string, FieldSummary>();
  let isPartial = false;
  for (const doc of docs) {
    const seen = new Set<string>();
    const visit = (node: Node, path: string) => {
      const type = typeOf(doc, node);
      let field = fields.get(path);
      if (!field) {
        if (fields.size >= FIELDS_MAX) {
          isPartial = true;
          return;
        }
        field = { path, documents: 0, types: new Map(), examples: [] };
        fields.set(path, field);
      }
      if (!seen.has(path)) field.documents += 1;
      seen.add(path);
      field.types.set(type, (field.types.get(type) ?? 0) + 1);
      if (type !== 'object' && type !== 'array') addExample(field, doc, node);
      descend(node, path, visit);
    };
    descend(parse(doc), '', visit);
  }
  return { documents: docs.length, fields: [...fields.values()], isPartial };
}

function descend(node: Node, path: string, visit: (node: Node, path: string) => void): void {
  node.children?.forEach((child, index) => {
    const name = node.keys?.[index];
    if (name === undefined) visit(child, `${path}[]`);
    else if (path !== '' || name !== '_attachments') visit(child, path === '' ? name : `${path}.${name}`);
  });
}

function addExample(field: FieldSummary, doc: string, node: Node): void {
  if (field.examples.length >= EXAMPLES_MAX) return;
  const example = plain(doc, node).slice(0, EXAMPLE_CHARS);
  if (!field.examples.includes(example)) field.examples.push(example);
}
