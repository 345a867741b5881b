/** One change of a member, applied to the texts of many documents. */
import { getAt, setAt, typedValue } from './edit.ts';
import { member, parse, type Node } from './text.ts';

export type Kind = 'set' | 'remove' | 'rename';

export interface Change {
  kind: Kind;
  /** Names joined by dots; `\.` is a dot within a name. */
  field: string;
  /** For `set`: JSON, or another text, which becomes a string. For `rename`: the new name of the last member. */
  value: string;
}

/** Effect on one document. `old` and `next` are undefined if the member does not exist. */
export type Effect = { kind: 'changed'; after: string; old: string | undefined; next: string | undefined } | { kind: 'same' } | { kind: 'skipped'; reason: string };

export function namesOf(field: string): string[] {
  return (field.match(/(?:\\.|[^.\\])+|(?<=\.|^)(?=\.|$)/g) ?? ['']).map((name) => name.replaceAll('\\.', '.'));
}

/** Returns the reason why a change is invalid, or undefined. */
export function refusal({ kind, field, value }: Change): string | undefined {
  const names = namesOf(field);
  if (names.includes('')) return 'Name a field.';
  if (names[0]?.startsWith('_')) return 'Members whose names start with _ belong to the server.';
  if (kind === 'rename' && value === '') return 'Name the new field.';
  return kind === 'rename' && names.length === 1 && value.startsWith('_') ? 'Members whose names start with _ belong to the server.' : undefined;
}

export function effect(text: string, change: Change): Effect {
  const names = namesOf(change.field);
  const blocked = names.slice(0, -1).findIndex((_, index) => {
    const node = nodeAt(text, names.slice(0, index + 1));
    return node !== undefined && node.kind !== 'object';
  });
  if (blocked >= 0) return { kind: 'skipped', reason: `${names.slice(0, blocked + 1).join('.')} is no object` };
  const old = getAt(text, names);
  if (change.kind === 'set') {
    const next = typedValue(undefined, change.value) ?? '""';
    return old === next ? { kind: 'same' } : { kind: 'changed', after: setAt(text, names, next), old, next };
  }
  if (old === undefined) return { kind: 'same' };
  if (change.kind === 'remove') return { kind: 'changed', after: setAt(text, names, undefined), old, next: undefined };
  const target = [...names.slice(0, -1), change.value];
  if (change.value === names.at(-1)) return { kind: 'same' };
  if (getAt(text, target) !== undefined) return { kind: 'skipped', reason: `${change.value} exists already` };
  return { kind: 'changed', after: setAt(setAt(text, names, undefined), target, old), old, next: old };
}

function nodeAt(text: string, names: string[]): Node | undefined {
  return names.reduce<Node | undefined>((node, name) => member(node, name), parse(text));
}
