import { useState } from 'preact/hooks';
import { send } from '../api/http.ts';
import { path } from '../api/paths.ts';
import { jsonProblems } from '../json/problems.ts';
import { member, parse, stringOf } from '../json/text.ts';
import { Restored, useDraft } from '../ui/draft.tsx';
import { Editor } from '../ui/editor.tsx';
import { Icon } from '../ui/icons.tsx';
import { Button, Card, Confirm, Dialog, Problem, Select, Skeleton, Tag, showToast } from '../ui/kit.tsx';
import { useAction } from '../ui/use.ts';

export interface Index {
  ddoc: string | null;
  name: string;
  type: string;
  partitioned?: boolean;
  def: { fields?: Record<string, string>[]; partial_filter_selector?: object };
}

export const indexedFields = ({ def }: Index) => (def.fields ?? []).flatMap((field) => Object.keys(field));
const fieldsOf = ({ def }: Index) => (def.fields ?? []).map((field) => Object.entries(field).map(([name, order]) => (order === 'desc' ? `${name} ↓` : name)).join(', ')).join(', ');

export function Indexes({ db, indexes, again, onNew }: { db: string; indexes: Index[] | undefined; again: () => void; onNew: () => void }) {
  const [deleting, setDeleting] = useState<Index>();
  return (
    <Card flush title="Indexes" actions={<Button icon="plus" onClick={onNew}>New index</Button>}>
      {!indexes ? <Skeleton lines={3} /> : (
        <ul class="key-list">{indexes.map((index) => (
          <li key={`${index.ddoc ?? ''} ${index.name}`} class="row spread" style={{ padding: '8px 16px' }}>
            <span class="row"><Icon name={index.type === 'special' ? 'file' : index.type === 'json' ? 'table' : 'search'} /><strong>{fieldsOf(index) || index.name}</strong><Tag>{index.type}</Tag>{index.def.partial_filter_selector && <Tag kind="accent">partial</Tag>}{index.partitioned && <Tag>partitioned</Tag>}</span>
            {index.ddoc !== null && <span class="row"><span class="note">{index.ddoc.slice('_design/'.length, '_design/'.length + 20)} / {index.name}</span><Button kind="quiet" icon="trash" label={`Delete the index ${index.name}`} onClick={() => setDeleting(index)} /></span>}
          </li>
        ))}</ul>
      )}
      {deleting && <Confirm title="Delete this index?" verb="Delete" onClose={() => setDeleting(undefined)} act={async () => {
        await send('DELETE', path`${db}/_index/${deleting.ddoc ?? ''}/${deleting.type}/${deleting.name}`);
        again();
      }}><p>Queries that use this index will read every document.</p></Confirm>}
    </Card>
  );
}

const text = (value: object) => JSON.stringify(value, null, 2);

/** Templates. The user edits the complete body of the request, so that all options of the server are available. */
export const DEFINITIONS: Record<string, string> = {
  json: text({ index: { fields: ['type', 'date'] }, ddoc: 'queries', name: 'by-type-and-date', type: 'json' }),
  partial: text({ index: { fields: ['date'], partial_filter_selector: { state: { $ne: 'archived' } } }, ddoc: 'queries', name: 'not-archived-by-date', type: 'json' }),
  text: text({ index: { fields: [{ name: 'title', type: 'string' }, { name: 'price', type: 'number' }] }, ddoc: 'texts', name: 'titles', type: 'text' }),
  all: text({ index: { default_field: { enabled: true, analyzer: 'standard' } }, ddoc: 'texts', name: 'all-fields', type: 'text' }),
};

const KINDS: [string, string][] = [['json', 'JSON: fields in an order'], ['partial', 'JSON: a part of the documents'], ['text', 'Text: chosen fields'], ['all', 'Text: all fields']];

export function NewIndex({ db, names, onClose, onDone }: { db: string; names: string[]; onClose: () => void; onDone: () => void }) {
  const [kind, setKind] = useState('json');
  const edited = useDraft(['index', db, kind], DEFINITIONS[kind] ?? '', '');
  const { busy, error, run } = useAction();
  const create = () => void run(async () => {
    const body = edited.now();
    const answer = (await send('POST', path`${db}/_index`, { body })).text;
    const name = stringOf(answer, member(parse(answer), 'name')) ?? '';
    showToast(stringOf(answer, member(parse(answer), 'result')) === 'exists' ? `The index ${name} exists already.` : `The index ${name} is created.`);
    edited.discard();
    onDone();
    onClose();
  });
  return (
    <Dialog title="New index" wide onClose={onClose}>
      <Select label="Start from" value={kind} onValue={setKind} options={KINDS} />
      <Restored found={edited.restored} onDiscard={edited.discard} />
      <Editor key={kind} label="Definition of the index" language="json" value={edited.text} onValue={edited.setText} problems={jsonProblems} onSave={create} lines={[9, 20]} complete={() => ['fields', 'partial_filter_selector', 'default_field', 'analyzer', 'partitioned', 'ddoc', 'name', 'type', ...names]} />
      <p class="note">The server builds a JSON index on the listed fields in their order. <code>partial_filter_selector</code> limits it to matching documents. Without <code>ddoc</code> or <code>name</code> the server generates them.</p>
      <Problem error={error} />
      <div class="actions end"><Button onClick={onClose}>Cancel</Button><Button kind="primary" icon="plus" busy={busy} onClick={create}>Create index</Button></div>
    </Dialog>
  );
}
