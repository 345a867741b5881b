/** Metrics of the server: current ones from `_prometheus`, `_system` and the tasks, earlier ones from the history of the server. */
import { useEffect, useState } from 'preact/hooks';
import { type History, type Plots, plots, plotsOf } from '../api/history.ts';
import { type Sample, type Series, rate, readMetrics, total } from '../api/prometheus.ts';
import { get, send } from '../api/http.ts';
import { query } from '../api/paths.ts';
import { useParam } from '../router.ts';
import { Chart } from '../ui/chart.tsx';
import { Card, Link, LinkButton, PageHead, Problem, Segments, Skeleton, Stat } from '../ui/kit.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { useRequest } from '../ui/use.ts';
import { bytes, duration, millis, number, plural, short } from '../ui/words.ts';

const EVERY_MS = 2000;
const POINTS = 300;

/** Windows that are filled from the history of the server, in seconds. */
const HISTORY: Record<string, number> = { hour: 3600, day: 86_400 };

interface Reading {
  at: number;
  samples: Sample[];
  system: System | undefined;
}

interface System {
  uptime?: number;
  memory?: Record<string, number>;
  process_count?: number;
}

const quantile = (samples: Sample[], which: string) => {
  const found = samples.find(({ name, labels }) => /couchdb_request_time_seconds$/.test(name) && labels['quantile'] === which);
  const millis = samples.find(({ name, labels }) => /couchdb_request_time$/.test(name) && labels['quantile'] === which);
  return found ? found.value * 1000 : millis?.value;
};

const statuses = (samples: Sample[], first: string) => total(samples, 'couchdb_httpd_status_codes', ({ code }) => code?.startsWith(first) ?? false);
const memory = (system: System | undefined) => Object.values(system?.memory ?? {}).filter((value) => typeof value === 'number').reduce((sum, value) => sum + value, 0) || undefined;

function record(to: Plots, before: Reading | undefined, now: Reading, disk: number | undefined): void {
  const seconds = before ? (now.at - before.at) / 1000 : 0;
  const each = (name: string) => rate(before && total(before.samples, name), total(now.samples, name), seconds);
  const time = now.at / 1000;
  to.requests.push(time, [each('couchdb_httpd_requests_total')]);
  to.latency.push(time, ['0.5', '0.9', '0.99'].map((which) => quantile(now.samples, which)));
  to.writes.push(time, [each('couchdb_document_writes_total'), each('couchdb_database_reads_total')]);
  to.memory.push(time, [memory(now.system)]);
  to.errors.push(time, ['4', '5'].map((first) => rate(before && statuses(before.samples, first), statuses(now.samples, first), seconds)));
  to.disk.push(time, [disk]);
}

/** Points of earlier visits of the page, which a later visit continues. */
const recorded: { plots: Plots; last: Reading | undefined } = { plots: plots(POINTS), last: undefined };

export function Dashboard() {
  const [window_, setWindow] = useParam('window', '150');
  const [version, bump] = useState(0);
  const disk = useRequest(async (signal) => (await get<{ info?: { sizes: { file: number } } }[]>('_dbs_info', signal)).reduce((sum, { info }) => sum + (info?.sizes.file ?? 0), 0), [], 15_000);
  const jobs = useRequest((signal) => get<{ jobs: { info?: { changes_pending?: number | null } }[] }>('_scheduler/jobs', signal), [], 5000);
  const result = useRequest(async (signal): Promise<Reading> => {
    const [text, system] = await Promise.all([
      send('GET', '_node/_local/_prometheus', { signal, headers: { Accept: 'text/plain' } }).then((answer) => answer.text),
      get<System>('_node/_local/_system', signal).catch(() => undefined),
    ]);
    return { at: Date.now(), samples: readMetrics(text), system };
  }, [], EVERY_MS);
  const seconds = HISTORY[window_];
  const history = useRequest(async (signal) => (seconds === undefined ? undefined : plotsOf(await get<History>(`_node/_local/_history${query({ since: Date.now() - seconds * 1000 })}`, signal))), [seconds], 60_000);
  useEffect(() => {
    if (!result.data) return;
    record(recorded.plots, recorded.last, result.data, disk.data);
    recorded.last = result.data;
    bump((n) => n + 1);
  }, [result.data]);
  if (result.error && !result.data) return <><PageHead title="Dashboard" /><Problem error={result.error} again={result.again} /></>;
  if (!result.data) return <Skeleton lines={10} />;
  const { samples, system } = result.data;
  const lag = jobs.data?.jobs.reduce((sum, { info }) => sum + (info?.changes_pending ?? 0), 0);
  const slow = total(samples, 'settee_slow_requests_total') ?? total(samples, 'settee_slow_requests');
  const span = seconds ?? Number(window_) * (EVERY_MS / 1000);
  const plot = (title: string, series: Series, format: (value: number) => string, note?: string) => (
    <Card title={title} note={note}><Chart label={title} names={series.names} data={tail(series, span, version)} format={format} span={span} /></Card>
  );
  const plotsNow = seconds === undefined ? recorded.plots : (history.data ?? plots(0));
  return (
    <>
      <PageHead title="Dashboard" note={seconds === undefined ? `Read every ${EVERY_MS / 1000} seconds while this page is open` : 'One sample per minute since the server started'}>
        <Segments label="Time shown" value={window_} onValue={setWindow} options={[['30', '1 min'], ['150', '5 min'], ['300', '10 min'], ['hour', '1 h'], ['day', '24 h']]} />
        <CopyAs request={{ method: 'GET', path: '_node/_local/_prometheus' }} />
      </PageHead>
      <Card><dl class="stats">
        <Stat label="Uptime" value={duration(system?.uptime ?? total(samples, 'couchdb_uptime_seconds'))} />
        <Stat label="Requests" value={short(total(samples, 'couchdb_httpd_requests_total') ?? 0)} />
        <Stat label="Memory" value={bytes(memory(system))} />
        <Stat label="On disk" value={bytes(disk.data)} />
        <Stat label="Changes feeds" value={number(total(samples, 'couchdb_httpd_clients_requesting_changes_total') ?? total(samples, 'couchdb_httpd_clients_requesting_changes') ?? 0)} />
        <Stat label="Replication lag" value={jobs.data && jobs.data.jobs.length > 0 ? plural(lag ?? 0, 'change') : '–'} note={jobs.data?.jobs.length === 0 ? 'No replication is running' : undefined} />
        {slow !== undefined && <Stat label="Slow requests" value={<Link to={['slow']}>{number(slow)}</Link>} />}
      </dl></Card>
      {history.error && <Problem error={history.error} again={history.again} />}
      <div class="grid-2 even">
        {plot('Requests a second', plotsNow.requests, (value) => short(value))}
        {plot('Latency', plotsNow.latency, millis, 'Of requests in the last minute')}
        {plot('Documents a second', plotsNow.writes, (value) => short(value))}
        {plot('Refused requests a second', plotsNow.errors, (value) => short(value))}
        {plot('Memory', plotsNow.memory, bytes)}
        {plot('Data on disk', plotsNow.disk, bytes)}
      </div>
      <div class="actions"><LinkButton to={['slow']} icon="clock">Slow requests</LinkButton><LinkButton to={['activity']} icon="activity">Activity</LinkButton></div>
    </>
  );
}

function tail(series: Series, span: number, _version: number) {
  const [times, ...values] = series.data();
  // Selected by time, because samples are missing while the page is closed.
  const start = (times.at(-1) ?? 0) - span;
  const from = times.findIndex((time) => time >= start);
  return [times.slice(from), ...values.map((list) => list.slice(from))] as [number[], ...(number | null)[][]];
}
