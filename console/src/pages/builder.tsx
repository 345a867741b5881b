/** Form that writes the selector, the order and the limit of a query. The text of the query is the only state. */
import { useState } from 'preact/hooks';
import { type Condition, conditionsOf, conditionValue, limitOf, orderOf, withCondition, withLimit, withOrder, withoutCondition } from '../json/selector.ts';
import { ChoiceField } from '../ui/choice.tsx';
import { Button, Field, ORDERS, Problem, Segments, Select } from '../ui/kit.tsx';
import { useAction } from '../ui/use.ts';

const OPERATORS: [string, string][] = [
  ['$eq', 'equals'], ['$ne', 'differs from'], ['$gt', 'greater than'], ['$gte', 'at least'], ['$lt', 'less than'], ['$lte', 'at most'], ['$in', 'one of'], ['$nin', 'none of'],
  ['$beginsWith', 'starts with'], ['$regex', 'matches'], ['$exists', 'exists'], ['$type', 'has the type'],
];
const LIMITS = ['25', '50', '100', '500'];
const SHOWN_MAX = 60;

interface BuilderProps {
  text: string;
  names: string[];
  onText: (text: string) => void;
}

/** Shows the conditions of the query and a line that adds one. Shows the line only while the text is not valid JSON. */
export function Builder({ text, names, onText }: BuilderProps) {
  const conditions = conditionsOf(text);
  return (
    <>
      {conditions !== undefined && conditions.length > 0 && (
        <ul class="chips" aria-label="Conditions">
          {conditions.map((each) => <li key={`${each.field} ${each.operator}`} class="tag"><Words of={each} /><button type="button" aria-label={`Remove the condition on ${each.field}`} onClick={() => onText(withoutCondition(text, each))}>×</button></li>)}
        </ul>
      )}
      <Adder text={text} names={names} onText={onText} />
      {conditions !== undefined && <Order text={text} names={names} onText={onText} />}
    </>
  );
}

function Words({ of: { field, operator, value } }: { of: Condition }) {
  const words = OPERATORS.find(([name]) => name === operator)?.[1] ?? operator;
  const shown = value.length > SHOWN_MAX ? `${value.slice(0, SHOWN_MAX)}…` : value;
  return <><strong>{field}</strong> {words} {shown}</>;
}

function Adder({ text, names, onText }: BuilderProps) {
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
      <div class="condition-box"><div class="condition">
        <ChoiceField label="Field" value={field} onValue={setField} choices={names} required mono />
        <Select label="Condition" value={operator} onValue={setOperator} options={OPERATORS} />
        <Field label="Value" value={value} onValue={setValue} mono placeholder={operator === '$exists' ? 'true' : 'text, 12.5 or true'} />
        <Button type="submit" icon="plus">Add</Button>
      </div></div>
      <Problem error={error} />
    </form>
  );
}

/** Order and size of a page. An order on several fields is left to the editor. */
function Order({ text, names, onText }: BuilderProps) {
  const order = orderOf(text);
  const limit = limitOf(text);
  return (
    <div class="row end">
      {order !== undefined && <div class="grow"><ChoiceField label="Sort by" value={order.field} onValue={(field) => onText(withOrder(text, { ...order, field }))} choices={names} mono placeholder="the order of the index" /></div>}
      {order !== undefined && order.field !== '' && <Segments label="Order of the results" value={order.descending ? 'down' : 'up'} options={ORDERS} onValue={(next) => onText(withOrder(text, { ...order, descending: next === 'down' }))} />}
      <Select label="Rows per page" value={limit} onValue={(next) => onText(withLimit(text, next))} options={LIMITS.includes(limit) ? LIMITS : [limit, ...LIMITS]} />
    </div>
  );
}
