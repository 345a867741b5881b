/** Comparison of conflicting revisions, and resolution of a conflict. */
import { post } from '../api/http.ts';
import { path } from '../api/paths.ts';
import { diff, pairs } from '../json/diff.ts';
import { format, withMembers } from '../json/text.ts';
import { useParam } from '../router.ts';
import { Button, Card, Empty, Problem, Select, Skeleton, showToast } from '../ui/kit.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { plural } from '../ui/words.ts';
import { type Loaded, load } from './document.tsx';

export function Difference({ left, right, leftName, rightName }: { left: string; right: string; leftName: string; rightName: string }) {
  const rows = pairs(diff(left, right));
  const changed = rows.filter(([a, b]) => a !== b).length;
  return (
    <Card flush title={changed === 0 ? 'No difference' : `${plural(changed, 'line')} ${changed === 1 ? 'differs' : 'differ'}`}>
      <div class="diff" role="region" tabIndex={0} aria-label={`${leftName} compared with ${rightName}`}>
        <div class="note">{leftName}</div><div class="note">{rightName}</div>
        {rows.map(([a, b], index) => (
          <>
            <div key={`l${index}`} class={a && a !== b ? 'removed' : ''}>{a !== b && a ? <span class="unseen">removed: </span> : null}{a?.text}</div>
            <div key={`r${index}`} class={b && a !== b ? 'added' : ''}>{a !== b && b ? <span class="unseen">added: </span> : null}{b?.text}</div>
          </>
        ))}
      </div>
    </Card>
  );
}

/** Returns the text without the revision id, which always differs. */
function body(doc: Loaded): string {
  return format(withMembers(doc.text, { _rev: undefined }));
}

export function Conflicts({ db, doc, again }: { db: string; doc: Loaded; again: () => void }) {
  const [other, setOther] = useParam('with');
  const chosen = doc.conflicts.includes(other) ? other : (doc.conflicts[0] ?? '');
  const result = useRequest((signal) => (chosen === '' ? Promise.resolve(undefined) : load(db, doc.id, chosen, signal)), [db, doc.id, chosen]);
  const { busy, error, run } = useAction();
  if (chosen === '') return <Empty icon="check" title="No conflicts">All replicas agree on this document.</Empty>;
  const keep = (rev: string) => void run(async () => {
    // All other leaves are deleted, so that the kept revision wins on all replicas.
    const losers = [doc.rev, ...doc.conflicts].filter((each) => each !== rev);
    const outcomes = await post<{ error?: string; reason?: string }[]>(path`${db}/_bulk_docs`, { docs: losers.map((_rev) => ({ _id: doc.id, _rev, _deleted: true })) });
    const failed = outcomes.find((outcome) => outcome.error !== undefined);
    if (failed) throw new Error(failed.reason ?? failed.error);
    showToast('The conflict is resolved.');
    again();
  });
  return (
    <div class="stack">
      <div class="toolbar">
        {doc.conflicts.length > 1 && <Select label="Compare with" value={chosen} onValue={(value) => setOther(value)} options={doc.conflicts} />}
        <span class="note grow">{plural(doc.conflicts.length + 1, 'revision')} in conflict. All servers select the same winner.</span>
      </div>
      <Problem error={error ?? result.error} />
      {!result.data && !result.error && <Skeleton />}
      {result.data && (
        <>
          <Difference left={body(doc)} right={body(result.data)} leftName={`Current, ${doc.rev}`} rightName={chosen} />
          <div class="actions">
            <Button kind="primary" icon="check" busy={busy} onClick={() => keep(doc.rev)}>Keep the left</Button>
            <Button icon="check" busy={busy} onClick={() => keep(chosen)}>Keep the right</Button>
            <span class="note">To merge the revisions, save a merged text in the editor first, then keep the left.</span>
          </div>
        </>
      )}
    </div>
  );
}
