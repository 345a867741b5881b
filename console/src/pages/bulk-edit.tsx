/** Dialog of a bulk edit: one change of many documents with a preview, the results and undo. */
import { useState } from 'preact/hooks';
import { idsOfQuery, loadTexts, saveTexts, texts, type Outcome } from '../api/bulk.ts';
import { effect, namesOf, refusal, type Change, type Effect, type Kind } from '../json/bulk.ts';
import { ChoiceField } from '../ui/choice.tsx';
import { Button, Dialog, Field, Notice, Problem, Segments, Tag, showToast } from '../ui/kit.tsx';
import { useAction } from '../ui/use.ts';
import { number, plural } from '../ui/words.ts';

const SHOWN = 100;
const VALUE_CHARS = 80;
const KINDS: [Kind, string][] = [['set', 'Set'], ['remove', 'Remove'], ['rename', 'Rename']];

/** Ids of selected documents, or a query all of whose documents are edited. */
export type EditTarget = { ids: string[] } | { find: string; query: string };

interface Planned {
  id: string;
  text: string;
  effect: Effect;
}

interface EditProps {
  db: string;
  chosen: EditTarget;
  names: string[];
  onClose: () => void;
  onDone: () => void;
}

export function EditMany({ db, chosen, names, onClose, onDone }: EditProps) {
  const [change, setChange] = useState<Change>({ kind: 'set', field: '', value: '' });
  const [plan, setPlan] = useState<Planned[]>();
  const [outcomes, setOutcomes] = useState<Outcome[]>();
  const [done, setDone] = useState(0);
  const { busy, error, run } = useAction();
  const problem = refusal(change);
  const preview = (event: Event) => {
    event.preventDefault();
    if (problem !== undefined) return;
    void run(async () => {
      const ids = 'ids' in chosen ? chosen.ids : await idsOfQuery(chosen.find, chosen.query);
      setPlan((await loadTexts(db, ids)).map(({ id, text }) => ({ id, text, effect: effect(text, change) })));
    });
  };
  const changes = plan?.flatMap(({ id, effect }) => (effect.kind === 'changed' ? [{ id, text: effect.after }] : [])) ?? [];
  const save = () => void run(async () => {
    setDone(0);
    setOutcomes(await saveTexts(db, changes, setDone));
    onDone();
  });
  const undo = () => void run(async () => {
    const before = new Map(plan?.map(({ id, text }) => [id, text]));
    const undone = await saveTexts(db, texts(before, outcomes ?? []));
    const failed = undone.filter((each) => each.error !== undefined);
    showToast(failed.length === 0 ? `${plural(undone.length, 'document')} restored.` : `${plural(undone.length - failed.length, 'document')} restored, ${number(failed.length)} not: another client has changed them.`);
    onDone();
    onClose();
  });
  const set = (next: Partial<Change>) => setChange({ ...change, ...next });
  return (
    <Dialog title={'ids' in chosen ? `Edit ${plural(chosen.ids.length, 'document')}` : 'Edit all documents that match the query'} wide onClose={onClose}>
      {!plan && (
        <form class="stack" onSubmit={preview}>
          <div><Segments label="Change" value={change.kind} options={KINDS} onValue={(kind) => set({ kind: kind as Kind })} /></div>
          <ChoiceField label="Field" value={change.field} onValue={(field) => set({ field })} choices={names} mono autofocus autocomplete="off" hint="Separate the names of nested members by dots: address.city." />
          {change.kind === 'set' && <Field label="Value" value={change.value} onValue={(value) => set({ value })} mono autocomplete="off" hint={'JSON, such as 12, true, "text" or {"a": 1}. Other text becomes a string.'} />}
          {change.kind === 'rename' && <Field label="New name" value={change.value} onValue={(value) => set({ value })} mono autocomplete="off" hint="The member stays in the same object." />}
          <Problem error={error} />
          <div class="actions end"><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit" busy={busy} disabled={problem !== undefined}>Preview</Button></div>
        </form>
      )}
      {plan && !outcomes && (
        <div class="stack">
          <Preview plan={plan} field={change.field} />
          <Problem error={error} />
          <div class="actions end">{busy && <span class="note" role="status">{number(done)} of {number(changes.length)} saved</span>}<Button onClick={() => setPlan(undefined)} disabled={busy}>Back</Button><Button kind="primary" busy={busy} disabled={changes.length === 0} onClick={save}>Change {plural(changes.length, 'document')}</Button></div>
        </div>
      )}
      {outcomes && (
        <div class="stack">
          <Results outcomes={outcomes} />
          <Problem error={error} />
          <div class="actions end"><Button icon="history" busy={busy} disabled={outcomes.every((each) => each.error !== undefined)} onClick={undo}>Undo</Button><Button kind="primary" onClick={onClose}>Close</Button></div>
        </div>
      )}
    </Dialog>
  );
}

const short = (text: string | undefined) => (text === undefined ? '–' : text.length > VALUE_CHARS ? `${text.slice(0, VALUE_CHARS)}…` : text);

function Preview({ plan, field }: { plan: Planned[]; field: string }) {
  const of = (kind: Effect['kind']) => plan.filter(({ effect }) => effect.kind === kind).length;
  const order = ['changed', 'skipped', 'same'];
  const shown = plan.toSorted((a, b) => order.indexOf(a.effect.kind) - order.indexOf(b.effect.kind)).slice(0, SHOWN);
  return (
    <>
      <p>{plural(of('changed'), 'document')} will change, {number(of('same'))} already match{of('skipped') > 0 && <>, {number(of('skipped'))} are skipped</>}.</p>
      {plan.length > 0 && <div class="table-wrap refusals" tabIndex={0} role="region" aria-label="Preview"><table class="one-line">
        <caption class="unseen">Preview</caption>
        <thead><tr><th scope="col">_id</th><th scope="col">{namesOf(field).at(-1)} now</th><th scope="col">afterwards</th></tr></thead>
        <tbody>{shown.map(({ id, effect }) => <tr key={id}><td class="mono">{id}</td>{effect.kind === 'changed' ? <><td class="mono">{short(effect.old)}</td><td class="mono">{short(effect.next)}</td></> : <td colSpan={2} class="quiet-text">{effect.kind === 'same' ? 'no change' : `skipped: ${effect.reason}`}</td>}</tr>)}</tbody>
      </table></div>}
      {plan.length > SHOWN && <p class="note">The first {number(SHOWN)} of {number(plan.length)}.</p>}
    </>
  );
}

function Results({ outcomes }: { outcomes: Outcome[] }) {
  const failed = outcomes.filter(({ error }) => error !== undefined);
  const shown = [...failed, ...outcomes.filter(({ error }) => error === undefined)].slice(0, SHOWN);
  return (
    <>
      {failed.length > 0 ? <Notice kind="warn">{plural(outcomes.length - failed.length, 'document')} saved, {number(failed.length)} refused. Refused documents are unchanged.</Notice> : <p role="status">{plural(outcomes.length, 'document')} saved.</p>}
      <div class="table-wrap refusals" tabIndex={0} role="region" aria-label="Results"><table class="one-line">
        <caption class="unseen">Results</caption>
        <thead><tr><th scope="col">_id</th><th scope="col">Result</th></tr></thead>
        <tbody>{shown.map(({ id, rev, error, reason }) => <tr key={id}><td class="mono">{id}</td><td>{error === undefined ? <>saved as <span class="mono">{rev}</span></> : <><Tag kind="bad">{error}</Tag> {reason}</>}</td></tr>)}</tbody>
      </table></div>
      {outcomes.length > SHOWN && <p class="note">The first {number(SHOWN)} of {number(outcomes.length)}.</p>}
    </>
  );
}
