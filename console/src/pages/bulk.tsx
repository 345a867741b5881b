/** Dialog that deletes several documents, with a preview and undo. */
import { post } from '../api/http.ts';
import { path } from '../api/paths.ts';
import { restore, type Deletion } from '../api/undo.ts';
import { columns, fields } from '../json/rows.ts';
import { Confirm, showToast } from '../ui/kit.tsx';
import { number, plural } from '../ui/words.ts';
import { cell } from './documents.tsx';

export interface DocToDelete {
  id: string;
  rev: string;
  /** Undefined if only the revision is loaded. */
  text: string | undefined;
}

const PREVIEW = 50;
const COLUMNS = 3;

interface Outcome {
  id: string;
  rev?: string;
  error?: string;
  reason?: string;
}

export function DeleteMany({ db, docs, onClose, onDone }: { db: string; docs: DocToDelete[]; onClose: () => void; onDone: () => void }) {
  const act = async () => {
    const outcomes = await post<Outcome[]>(path`${db}/_bulk_docs`, { docs: docs.map(({ id, rev }) => ({ _id: id, _rev: rev, _deleted: true })) });
    const failed = outcomes.filter(({ error }) => error !== undefined);
    const done = outcomes.flatMap(({ rev }, index): Deletion[] => (rev === undefined ? [] : [{ id: docs[index]?.id ?? '', old: docs[index]?.rev ?? '' }]));
    onDone();
    if (done.length > 0) showToast(`${plural(done.length, 'document')} deleted.`, { text: 'Undo', act: () => undo(db, done, onDone) });
    if (failed.length > 0) throw new Error(`${plural(failed.length, 'document')} could not be deleted, first ${failed[0]?.id ?? ''}: ${failed[0]?.reason ?? failed[0]?.error ?? ''}`);
  };
  return (
    <Confirm title={`Delete ${plural(docs.length, 'document')}?`} verb="Delete" act={act} onClose={onClose} wide>
      <p>Each deletion is a new revision, which replicates like other changes.</p>
      <Preview docs={docs} />
    </Confirm>
  );
}

function undo(db: string, deletions: Deletion[], onDone: () => void): void {
  restore(db, deletions).then((failed) => {
    const count = deletions.length - failed.length;
    showToast(failed.length === 0 ? `${plural(count, 'document')} restored.` : `${plural(count, 'document')} restored, ${number(failed.length)} not: their revisions were compacted, or another client has changed them.`);
    onDone();
  }, (error: Error) => showToast(`The documents were not restored: ${error.message}`));
}

function Preview({ docs }: { docs: DocToDelete[] }) {
  const shown = docs.slice(0, PREVIEW);
  const members = shown.map(({ text }) => (text === undefined ? new Map<string, string>() : fields(text)));
  const names = columns(members, COLUMNS);
  return (
    <>
      <div class="table-wrap refusals" tabIndex={0} role="region" aria-label="Documents to delete"><table class="one-line">
        <caption class="unseen">Documents to delete</caption>
        <thead><tr><th scope="col">_id</th>{names.map((name) => <th key={name} scope="col">{name}</th>)}</tr></thead>
        <tbody>{shown.map(({ id }, index) => <tr key={id}><td class="mono">{id}</td>{names.map((name) => <td key={name}>{cell(members[index]?.get(name)).slice(0, 80)}</td>)}</tr>)}</tbody>
      </table></div>
      {docs.length > PREVIEW && <p class="note">The first {number(PREVIEW)} of {number(docs.length)}.</p>}
    </>
  );
}
