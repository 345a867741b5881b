/** Form that adds conditions to the selector of a query. The text of the query is the only state. */
import { useState } from 'preact/hooks';
import { getAt, setAt } from '../json/edit.ts';
import { compact, format, parse, withMembers } from '../json/text.ts';
import { ChoiceField } from '../ui/choice.tsx';
import { Button, Field, Problem, Select } from '../ui/kit.tsx';
import { useAction } from '../ui/use.ts';

const OPERATORS: [string, string][] = [
  ['$eq', 'equals'], ['$ne', 'differs from'], ['$gt', 'greater than'], ['$gte', 'at least'], ['$lt', 'less than'], ['$lte', 'at most'], ['$in', 'one of'], ['$nin', 'none of'],
  ['$beginsWith', 'starts with'], ['$regex', 'matches'], ['$exists', 'exists'], ['$type', 'has the type'],
];

/** Condition of a new query, which matches every document. */
const MATCH_ALL = '{"$gt":null}';

/** Converts typed text to JSON. Text that is not JSON becomes a string. A list is JSON or separated by commas. */
export function conditionValue(operator: string, typed: string): string {
  if (operator === '$exists') return typed === 'false' ? 'false' : 'true';
  const isList = operator === '$in' || operator === '$nin';
  try {
    const isArray = parse(typed).kind === 'array';
    return isList && !isArray ? `[${typed}]` : typed;
  } catch {
    return isList ? `[${typed.split(',').map((part) => conditionValue('$eq', part.trim())).join(',')}]` : JSON.stringify(typed);
  }
}

export function withCondition(query: string, field: string, operator: string, value: string): string {
  const idCondition = getAt(query, ['selector', '_id']);
  const start = field !== '_id' && idCondition !== undefined && compact(idCondition) === MATCH_ALL ? setAt(query, ['selector', '_id'], undefined) : query;
  const old = getAt(start, ['selector', field]);
  const isCondition = old !== undefined && parse(old).kind === 'object' && (parse(old).keys ?? []).every((key) => key.startsWith('$'));
  const base = old === undefined ? '{}' : isCondition ? old : `{"$eq":${old}}`;
  return format(setAt(start, ['selector', field], withMembers(base, { [operator]: value })));
}

export function Builder({ text, names, onText }: { text: string; names: string[]; onText: (text: string) => void }) {
  const [field, setField] = useState('');
  const [operator, setOperator] = useState('$eq');
  const [value, setValue] = useState('');
  const { error, run } = useAction();
  const add = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      onText(await Promise.resolve(withCondition(text, field, operator, conditionValue(operator, value))));
      setField('');
      setValue('');
    });
  };
  return (
    <form class="stack small" onSubmit={add} aria-label="Add a condition">
      <div class="row end">
        <div class="grow"><ChoiceField label="Field" value={field} onValue={setField} choices={names} required mono /></div>
        <Select label="Condition" value={operator} onValue={setOperator} options={OPERATORS} />
        <div class="grow"><Field label="Value" value={value} onValue={setValue} mono placeholder={operator === '$exists' ? 'true' : '"text", 12.5 or true'} /></div>
        <Button type="submit" icon="plus">Add</Button>
      </div>
      <Problem error={error} />
    </form>
  );
}
