/** Stored and running replications with their errors. */
import { useState } from 'preact/hooks';
import { createDatabase } from '../api/config.ts';
import type { Source } from '../api/export.ts';
import { ApiError, get, send } from '../api/http.ts';
import { docPath, query } from '../api/paths.ts';
import { withMembers } from '../json/text.ts';
import { useParam, useRoute } from '../router.ts';
import { Button, Card, Confirm, Dialog, Empty, Json, Link, LinkButton, PageHead, Problem, Segments, Skeleton, Tag, showToast } from '../ui/kit.tsx';
import { Export } from '../ui/export.tsx';
import { CopyAs, Menu } from '../ui/menu.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { ago, number, plural, withoutPassword } from '../ui/words.ts';
import { NewReplication } from './replicate.tsx';

interface Info {
  error?: string;
  docs_read?: number;
  docs_written?: number;
  doc_write_failures?: number;
  changes_pending?: number | null;
}

interface StoredDoc {
  database: string;
  doc_id: string;
  id: string | null;
  source: string;
  target: string;
  state: string | null;
  error_count: number;
  info: Info | null;
  start_time: string | null;
  last_updated: string | null;
}

interface Job {
  database: string | null;
  doc_id: string | null;
  id: string;
  source: string;
  target: string;
  user: string | null;
  start_time: string;
  info: Info | null;
  history: { timestamp: string; type: string; reason?: string }[];
}

const STATES: Record<string, 'good' | 'warn' | 'bad' | 'accent' | 'plain'> = { running: 'accent', completed: 'good', pending: 'plain', initializing: 'plain', crashing: 'warn', error: 'bad', failed: 'bad', started: 'accent', crashed: 'warn' };
const PAGE = 100;

export function Replication() {
  const { path } = useRoute();
  return path[1] === 'new' ? <NewReplication /> : <List />;
}

/** Yields all replications with their passwords masked, in pages. */
function replications(tab: string): Source {
  return async function* pages(signal) {
    const [path, member] = tab === 'stored' ? ['_scheduler/docs', 'docs'] : ['_scheduler/jobs', 'jobs'];
    for (let skip = 0; ; skip += PAGE) {
      const found = (await get<Record<string, (StoredDoc | Job)[]>>(path + query({ limit: PAGE, skip }), signal))[member] ?? [];
      yield found.map((each) => JSON.stringify({ ...each, source: withoutPassword(each.source), target: withoutPassword(each.target) }));
      if (found.length < PAGE) return;
    }
  };
}

function List() {
  const [tab, setTab] = useParam('show', 'stored');
  const [shown, setShown] = useState<StoredDoc | Job>();
  const [deleting, setDeleting] = useState<StoredDoc>();
  const docs = useRequest((signal) => get<{ docs: StoredDoc[]; total_rows: number }>(`_scheduler/docs${query({ limit: PAGE })}`, signal), [], 3000);
  const jobs = useRequest((signal) => get<{ jobs: Job[]; total_rows: number }>(`_scheduler/jobs${query({ limit: PAGE })}`, signal), [], 3000);
  const { error, run } = useAction();
  const isMissing = docs.error instanceof ApiError && docs.error.status === 404;
  const retry = (doc: StoredDoc) => void run(async () => {
    // Writing the document restarts the replication.
    const at = docPath(doc.database, doc.doc_id);
    const { text } = await send('GET', at);
    await send('PUT', at, { body: withMembers(text, { _replication_state: undefined, _replication_state_time: undefined, _replication_state_reason: undefined, _replication_id: undefined }) });
    showToast('The replication was restarted.');
    docs.again();
  });
  return (
    <>
      <PageHead title="Replication" note="Copies changes between databases of this and other servers">
        <Segments label="Show" value={tab} onValue={setTab} options={[['stored', `Stored${docs.data ? ` (${docs.data.total_rows})` : ''}`], ['jobs', `Running${jobs.data ? ` (${jobs.data.total_rows})` : ''}`]]} />
        {(tab === 'stored' ? docs.data?.docs : jobs.data?.jobs)?.length ? <Export name="replications" source={() => replications(tab)} /> : null}
        <CopyAs request={{ method: 'GET', path: tab === 'stored' ? '_scheduler/docs' : '_scheduler/jobs' }} />
        <LinkButton to={['replication', 'new']} kind="primary" icon="plus">New replication</LinkButton>
      </PageHead>
      <Problem error={error ?? (isMissing ? undefined : docs.error)} />
      {tab === 'stored' ? (
        <Card flush>
          {!docs.data && !docs.error && <Skeleton />}
          {(isMissing || docs.data?.docs.length === 0) && <Empty icon="replicate" title="No stored replications" action={<><LinkButton to={['replication', 'new']} kind="primary" icon="plus">New replication</LinkButton>{isMissing && <Button onClick={() => void run(async () => { await createDatabase('_replicator'); docs.again(); })}>Create _replicator</Button>}</>}>Stored replications continue after a restart of the server.</Empty>}
          {docs.data && docs.data.docs.length > 0 && <Stored docs={docs.data.docs} onShow={setShown} onDelete={setDeleting} onRetry={retry} />}
        </Card>
      ) : (
        <Card flush>
          {!jobs.data && !jobs.error && <Skeleton />}
          <Problem error={jobs.error} />
          {jobs.data?.jobs.length === 0 && <Empty icon="replicate" title="No replication is running" />}
          {jobs.data && jobs.data.jobs.length > 0 && <Jobs jobs={jobs.data.jobs} onShow={setShown} />}
        </Card>
      )}
      {shown && <Details shown={shown} onClose={() => setShown(undefined)} />}
      {deleting && <Confirm title="Delete this replication?" verb="Delete" onClose={() => setDeleting(undefined)} act={async () => {
        const at = docPath(deleting.database, deleting.doc_id);
        const { _rev } = await get<{ _rev: string }>(at);
        await send('DELETE', at + query({ rev: _rev }));
        docs.again();
      }}><p>{withoutPassword(deleting.source)} → {withoutPassword(deleting.target)}</p><p>The replication stops. Copied documents are kept.</p></Confirm>}
    </>
  );
}

function Endpoints({ source, target }: { source: string; target: string }) {
  return <span class="two-lines"><span class="break">{withoutPassword(source)}</span><small class="break">to {withoutPassword(target)}</small></span>;
}

function Stored({ docs, onShow, onDelete, onRetry }: { docs: StoredDoc[]; onShow: (doc: StoredDoc) => void; onDelete: (doc: StoredDoc) => void; onRetry: (doc: StoredDoc) => void }) {
  return (
    <div class="table-wrap"><table>
      <caption class="unseen">Stored replications</caption>
      <thead><tr><th scope="col">From and to</th><th scope="col">State</th><th scope="col" class="num hide-small">Written</th><th scope="col" class="num hide-small">Pending</th><th scope="col" class="hide-small">Updated</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
      <tbody>{docs.map((doc) => (
        <tr key={`${doc.database} ${doc.doc_id}`}>
          <td><Endpoints source={doc.source} target={doc.target} /></td>
          <td><span class="two-lines"><span><Tag kind={STATES[doc.state ?? ''] ?? 'plain'}>{doc.state ?? 'new'}</Tag></span>{doc.info?.error && <small>{doc.info.error.slice(0, 160)}{doc.error_count > 1 ? ` (${plural(doc.error_count, 'time')})` : ''}</small>}</span></td>
          <td class="num hide-small">{number(doc.info?.docs_written)}</td><td class="num hide-small">{number(doc.info?.changes_pending)}</td>
          <td class="hide-small">{doc.last_updated ? ago(new Date(doc.last_updated)) : ''}</td>
          <td class="tight"><Menu label={`Actions on ${doc.doc_id}`} icon="down" items={[
            { text: 'Details', icon: 'file', act: () => onShow(doc) },
            { text: 'Restart', icon: 'refresh', act: () => onRetry(doc) },
            { text: 'Delete', icon: 'trash', act: () => onDelete(doc) },
          ]} /></td>
        </tr>
      ))}</tbody>
    </table></div>
  );
}

function Jobs({ jobs, onShow }: { jobs: Job[]; onShow: (job: Job) => void }) {
  return (
    <div class="table-wrap"><table>
      <caption class="unseen">Running replications</caption>
      <thead><tr><th scope="col">From and to</th><th scope="col">Last event</th><th scope="col" class="num hide-small">Written</th><th scope="col" class="num hide-small">Pending</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
      <tbody>{jobs.map((job) => (
        <tr key={job.id}>
          <td><Endpoints source={job.source} target={job.target} /></td>
          <td><span class="two-lines"><span><Tag kind={STATES[job.history[0]?.type ?? ''] ?? 'plain'}>{job.history[0]?.type ?? ''}</Tag></span>{job.history[0]?.reason && <small>{job.history[0].reason.slice(0, 160)}</small>}</span></td>
          <td class="num hide-small">{number(job.info?.docs_written)}</td><td class="num hide-small">{number(job.info?.changes_pending)}</td>
          <td class="tight"><Button kind="quiet" onClick={() => onShow(job)}>Details</Button></td>
        </tr>
      ))}</tbody>
    </table></div>
  );
}

function Details({ shown, onClose }: { shown: StoredDoc | Job; onClose: () => void }) {
  const isJob = 'history' in shown;
  const hidden = { ...shown, source: withoutPassword(shown.source), target: withoutPassword(shown.target) };
  return (
    <Dialog title={shown.doc_id ?? shown.id ?? 'Replication'} wide onClose={onClose}>
      {shown.doc_id && shown.database && <p><Link to={['db', shown.database, 'doc', shown.doc_id]}>Open the document</Link></p>}
      {isJob && <div class="table-wrap"><table><caption class="unseen">History</caption><tbody>{shown.history.map((event, index) => <tr key={index}><td class="tight">{new Date(event.timestamp).toLocaleString()}</td><td class="tight"><Tag kind={STATES[event.type] ?? 'plain'}>{event.type}</Tag></td><td>{event.reason}</td></tr>)}</tbody></table></div>}
      <Json text={JSON.stringify(hidden, null, 2)} label="Details" />
    </Dialog>
  );
}
