import { useState } from 'preact/hooks';
import { TEMPLATES, removeQuery, storeQuery, storedQueries, type StoredQuery } from '../api/queries.ts';
import { Button, Dialog, Field, showToast } from '../ui/kit.tsx';

interface QueriesProps {
  db: string;
  text: string;
  onChoose: (text: string) => void;
  onClose: () => void;
}

/** Returns the selector of a query in one line. The text need not be valid JSON. */
function summary(text: string): string {
  return text.replace(/\s+/g, ' ').replace(/^\{ ?"selector": ?/, '').slice(0, 160);
}

export function Queries({ db, text, onChoose, onClose }: QueriesProps) {
  const [kept, setKept] = useState(() => storedQueries(db));
  const [name, setName] = useState('');
  const save = (event: Event) => {
    event.preventDefault();
    storeQuery(db, { name, text });
    setKept(storedQueries(db));
    setName('');
    showToast(`The query ${name} is saved in this browser.`);
  };
  const forget = (query: StoredQuery) => {
    removeQuery(db, query);
    setKept(storedQueries(db));
  };
  const list = { onChoose, onForget: forget };
  return (
    <Dialog title="Queries" wide onClose={onClose}>
      <form class="row end" onSubmit={save}>
        <div class="grow"><Field label="Save the query in the editor as" value={name} onValue={setName} required placeholder="Name" /></div>
        <Button type="submit" icon="check" disabled={name === ''}>Save</Button>
      </form>
      <QueryList title="Saved" queries={kept.filter((each) => each.name !== undefined)} {...list} empty="Saved queries are kept in this browser." />
      <QueryList title="Recent" queries={kept.filter((each) => each.name === undefined)} {...list} empty="Queries appear here after they have run." />
      <QueryList title="Templates" queries={TEMPLATES} onChoose={onChoose} />
    </Dialog>
  );
}

function QueryList({ title, queries, empty, onChoose, onForget }: { title: string; queries: StoredQuery[]; empty?: string; onChoose: (text: string) => void; onForget?: (query: StoredQuery) => void }) {
  return (
    <section class="stack small" aria-label={title}>
      <h3>{title}</h3>
      {queries.length === 0 && <p class="note">{empty}</p>}
      <ul class="query-list">{queries.map((query) => (
        <li key={`${query.name ?? ''} ${query.text}`}>
          <button type="button" onClick={() => onChoose(query.text)}>{query.name !== undefined && <strong>{query.name}</strong>}<code class="cut">{summary(query.text)}</code></button>
          {onForget && <Button kind="quiet" icon="trash" label={`Remove ${query.name ?? summary(query.text)}`} onClick={() => onForget(query)} />}
        </li>
      ))}</ul>
    </section>
  );
}
