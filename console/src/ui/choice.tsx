/** Fields with suggestions, which also accept other values. */
import type { JSX } from 'preact';
import { useId } from 'preact/hooks';
import { Field } from './kit.tsx';

interface ChoiceProps extends Omit<JSX.InputHTMLAttributes<HTMLInputElement>, 'label' | 'onInput' | 'value' | 'list'> {
  label: string;
  value: string;
  onValue: (value: string) => void;
  choices: readonly string[];
  hint?: string;
  mono?: boolean;
  hideLabel?: boolean;
}

export function ChoiceField({ choices, ...field }: ChoiceProps) {
  const id = useId();
  return (
    <>
      <Field {...field} list={id} />
      <datalist id={id}>{choices.map((choice) => <option key={choice} value={choice} />)}</datalist>
    </>
  );
}

/** Buttons that add a name to a list or remove it. */
export function Toggles({ label, chosen, choices, onToggle }: { label: string; chosen: readonly string[]; choices: readonly string[]; onToggle: (choice: string) => void }) {
  if (choices.length === 0) return null;
  return (
    <div class="chips" role="group" aria-label={label}>
      {choices.map((choice) => <button key={choice} type="button" class={`tag toggle ${chosen.includes(choice) ? 'accent' : ''}`} aria-pressed={chosen.includes(choice)} onClick={() => onToggle(choice)}>{choice}</button>)}
    </div>
  );
}
