/** Background tasks: index builds with their rate, compactions, replications. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { build, controlBuild } from '../api/design.ts';
import { objectSource } from '../api/export.ts';
import { get } from '../api/http.ts';
import { Series } from '../api/prometheus.ts';
import { useParam } from '../router.ts';
import { Chart } from '../ui/chart.tsx';
import { Export } from '../ui/export.tsx';
import { Button, Card, Empty, Link, Meter, PageHead, Problem, Segments, Skeleton, Tag } from '../ui/kit.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { ago, duration, number, plural, short, withoutPassword } from '../ui/words.ts';

interface Task {
  type: string;
  pid?: string;
  database?: string;
  design_document?: string;
  progress?: number;
  changes_done?: number;
  total_changes?: number;
  eta_s?: number | null;
  started_on: number;
  updated_on: number;
  source?: string;
  target?: string;
  docs_written?: number;
  changes_pending?: number | null;
  continuous?: boolean;
  phase?: string;
}

const EVERY_MS = 1000;
const POINTS = 120;

const keyOf = (task: Task) => `${task.type} ${task.database ?? task.source ?? ''} ${task.design_document ?? task.target ?? ''} ${task.pid ?? ''}`;
const KINDS: Record<string, string> = { indexer: 'Index build', database_compaction: 'Compaction of a database', view_compaction: 'Compaction of an index', replication: 'Replication', search_indexer: 'Search index' };

interface TaskRate {
  series: Series;
  done: number;
  at: number;
  paused: boolean;
}

export function Activity() {
  const [kind, setKind] = useParam('type', 'all');
  const rates = useRef(new Map<string, TaskRate>());
  const [paused, setPaused] = useState<Task[]>([]);
  const result = useRequest((signal) => get<Task[]>('_active_tasks', signal), [], EVERY_MS);
  useEffect(() => {
    const now = Date.now();
    for (const task of result.data ?? []) {
      const done = task.changes_done ?? task.docs_written ?? 0;
      const key = keyOf(task);
      const old = rates.current.get(key);
      const series = old?.series ?? new Series(['Changes a second'], POINTS);
      if (old && done >= old.done && now > old.at) series.push(now / 1000, [((done - old.done) * 1000) / (now - old.at)]);
      rates.current.set(key, { series, done, at: now, paused: false });
    }
  }, [result.data]);
  const shown = (result.data ?? []).filter(({ type }) => kind === 'all' || (kind === 'indexes' ? type.includes('index') : kind === 'compactions' ? type.includes('compaction') : type === 'replication'));
  return (
    <>
      <PageHead title="Activity" note="Background tasks of the server">
        <Segments label="Show" value={kind} onValue={setKind} options={[['all', 'All'], ['indexes', 'Indexes'], ['compactions', 'Compactions'], ['replications', 'Replications']]} />
        {shown.length > 0 && <Export name="tasks" source={() => objectSource(shown.map(maskedTask))} />}
        <CopyAs request={{ method: 'GET', path: '_active_tasks' }} />
      </PageHead>
      <Problem error={result.error} again={result.again} />
      <Card flush>
        {!result.data && !result.error && <Skeleton />}
        {result.data && shown.length === 0 && <Empty icon="activity" title="No task is running">Index builds, compactions and replications appear here while they run.</Empty>}
        {shown.map((task) => <TaskRow key={keyOf(task)} task={task} rate={rates.current.get(keyOf(task))} onPaused={() => setPaused((old) => [...old.filter((each) => keyOf(each) !== keyOf(task)), task])} />)}
      </Card>
      {paused.length > 0 && <Card flush title="Paused in this session">{paused.map((task) => <PausedBuild key={keyOf(task)} task={task} onGone={() => setPaused((old) => old.filter((each) => each !== task))} />)}</Card>}
    </>
  );
}

/** Returns the task as it is exported: without passwords in URLs. */
export const maskedTask = (task: Task): Task => ({ ...task, ...(task.source !== undefined && { source: withoutPassword(task.source) }), ...(task.target !== undefined && { target: withoutPassword(task.target) }) });

const ddocOf = (task: Task) => task.design_document?.replace('_design/', '') ?? '';
/** Removes the path of the shard, which servers with several shards return. */
const dbOf = (task: Task) => (task.database ?? '').replace(/^shards\/[^/]+\//, '').replace(/\.\d{10}$/, '');

function TaskRow({ task, rate, onPaused }: { task: Task; rate: TaskRate | undefined; onPaused: () => void }) {
  const { busy, error, run } = useAction();
  const isIndex = task.type === 'indexer';
  const canControl = useRequest((signal) => (isIndex ? build(dbOf(task), ddocOf(task), signal) : Promise.resolve(undefined)), [task.database, task.design_document]).data !== undefined;
  const percent = task.progress ?? (task.total_changes ? (100 * (task.changes_done ?? 0)) / task.total_changes : undefined);
  const data = rate?.series.data();
  const rateNow = data?.[1]?.at(-1);
  const control = (action: 'pause' | 'cancel') => void run(async () => {
    await controlBuild(dbOf(task), ddocOf(task), action);
    if (action === 'pause') onPaused();
  });
  return (
    <div class="build">
      <div class="two-lines">
        <span class="row"><Tag kind="accent">{KINDS[task.type] ?? task.type}</Tag>
          {task.type === 'replication' ? <strong class="break">{withoutPassword(task.source ?? '')} → {withoutPassword(task.target ?? '')}</strong>
            : <strong><Link to={['db', dbOf(task)]}>{dbOf(task)}</Link>{task.design_document && <> / <Link to={['db', dbOf(task), 'design', ddocOf(task)]}>{ddocOf(task)}</Link></>}</strong>}</span>
        <small>
          {number(task.changes_done ?? task.docs_written)}{task.total_changes !== undefined && ` of ${number(task.total_changes)} changes`}
          {typeof rateNow === 'number' && ` · ${short(rateNow)} a second`}{typeof task.eta_s === 'number' && ` · ${duration(task.eta_s)} left`} · started {ago(new Date(task.started_on * 1000))}
        </small>
      </div>
      {isIndex && canControl && <div class="actions"><Button icon="pause" busy={busy} onClick={() => control('pause')}>Pause</Button><Button kind="danger" icon="stop" busy={busy} onClick={() => control('cancel')}>Cancel</Button></div>}
      {percent !== undefined && <div style={{ gridColumn: '1 / -1' }}><Meter label={`${KINDS[task.type] ?? task.type} of ${dbOf(task)}`} value={percent} /></div>}
      {error && <div style={{ gridColumn: '1 / -1' }}><Problem error={error} /></div>}
      {data && data[0].length > 1 && <Chart label="Changes a second" names={['Changes a second']} data={data} format={short} height={96} />}
    </div>
  );
}

function PausedBuild({ task, onGone }: { task: Task; onGone: () => void }) {
  const state = useRequest((signal) => build(dbOf(task), ddocOf(task), signal), [task.database, task.design_document], 2000);
  const { busy, error, run } = useAction();
  return (
    <div class="build">
      <div class="two-lines"><span class="row"><Tag kind="warn">{state.data?.status ?? 'paused'}</Tag><strong>{dbOf(task)} / {ddocOf(task)}</strong></span><small>{state.data ? `${plural(state.data.updates_pending, 'change')} pending` : ''}</small></div>
      <div class="actions"><Button icon="play" kind="primary" busy={busy} onClick={() => void run(async () => { await controlBuild(dbOf(task), ddocOf(task), 'resume'); onGone(); })}>Resume</Button></div>
      <Problem error={error} />
    </div>
  );
}
