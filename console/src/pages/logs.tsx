/** The end of the server's log, and slow requests. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { objectSource } from '../api/export.ts';
import { ApiError, send } from '../api/http.ts';
import { setParams, useParam } from '../router.ts';
import { Button, Card, Check, Empty, Field, Link, LinkButton, PageHead, Problem, Select, Skeleton, Tag } from '../ui/kit.tsx';
import { Export } from '../ui/export.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { useRequest } from '../ui/use.ts';
import { bytes, millis, number } from '../ui/words.ts';

const BYTES = 200_000;
/** Distance from the end at which the log is still followed. */
const END_PX = 40;
const LEVELS = ['debug', 'info', 'notice', 'warning', 'error'];

/** Reads the log. Only Settee and CouchDB 1.x provide `_log`. */
async function readLog(bytes: number, signal: AbortSignal): Promise<string[]> {
  const { text } = await send('GET', `_log?bytes=${bytes}`, { signal, headers: { Accept: 'text/plain, */*' } });
  return text.split('\n').filter((line) => line !== '');
}

export const levelOf = (line: string) => /^\[(\w+)\]/.exec(line)?.[1] ?? /"level":"(\w+)"/.exec(line)?.[1] ?? 'info';

function NoLog() {
  return <Card><Empty icon="logs" title="This server does not show its log">The section [log] of the configuration determines where the server writes its log. Only Settee provides it over HTTP.</Empty></Card>;
}

const isMissing = (error: Error | undefined) => error instanceof ApiError && [400, 404, 405].includes(error.status);

export function Logs() {
  const [q] = useParam('q');
  const [minLevel, setMinLevel] = useParam('level', 'debug');
  const [live, setLive] = useParam('live', '1');
  const box = useRef<HTMLDivElement>(null);
  // True while the end is visible: new lines then scroll into view.
  const [follows, setFollows] = useState(true);
  const result = useRequest((signal) => readLog(BYTES, signal), [], live === '1' ? 2000 : 0);
  const lines = (result.data ?? []).filter((line) => LEVELS.indexOf(levelOf(line)) >= LEVELS.indexOf(minLevel) && line.toLowerCase().includes(q.toLowerCase()));
  const newest = lines.at(-1);
  const toEnd = () => { if (box.current) box.current.scrollTop = box.current.scrollHeight; };
  useLayoutEffect(() => { if (follows) toEnd(); }, [newest, lines.length, follows]);
  const onScroll = () => {
    const at = box.current;
    if (at) setFollows(at.scrollHeight - at.scrollTop - at.clientHeight < END_PX);
  };
  return (
    <>
      <PageHead title="Logs" note="The newest lines of the server's log. Passwords and tokens are masked.">{lines.length > 0 && <Export name="log" source={() => objectSource(lines.map((line) => ({ level: levelOf(line), line })))} />}<CopyAs request={{ method: 'GET', path: `_log?bytes=${BYTES}` }} /><LinkButton to={['slow']} icon="clock">Slow requests</LinkButton></PageHead>
      {isMissing(result.error) ? <NoLog /> : (
        <>
          <div class="toolbar">
            <div class="grow"><Field label="Lines that contain" value={q} onValue={(value) => setParams({ q: value }, true)} type="search" placeholder="a request id, a path …" /></div>
            <Select label="From level" value={minLevel} onValue={setMinLevel} options={LEVELS} />
            <Check label="Live" checked={live === '1'} onChecked={(on) => setLive(on ? '1' : '0')} />
            {!follows && <Button icon="down" onClick={toEnd}>To the end</Button>}
          </div>
          <Problem error={result.error} />
          {!result.data && !result.error && <Skeleton lines={10} />}
          {result.data && <section class="card flush fills"><div class="log" ref={box} tabIndex={0} onScroll={onScroll} role="region" aria-label="Log">{lines.slice(-1500).map((line, index) => <div key={index} class={`log-${levelOf(line)}`}>{line}</div>)}{lines.length === 0 && <Empty icon="logs" title="No lines match" />}</div></section>}
        </>
      )}
    </>
  );
}

interface SlowRequest {
  method: string;
  target: string;
  ms: number;
  route: string;
  /** Number of entries read from the store. Undefined for older servers. */
  entries?: number;
  read?: number;
  line: string;
}

/** Parses the log lines about requests that exceeded `[log] slow_request_ms`. */
export function slowRequests(lines: string[]): SlowRequest[] {
  return lines.filter((line) => line.includes('a slow request')).flatMap((line) => {
    const of = (name: string) => new RegExp(`${name}[=:]"?([^\\s",]+)`).exec(line.replaceAll('":', '=').replaceAll('="', '="'))?.[1];
    const ms = Number(of('duration_ms'));
    const read = of('read_bytes') === undefined ? {} : { entries: Number(of('entries')), read: Number(of('read_bytes')) };
    return Number.isFinite(ms) ? [{ method: of('method') ?? '', target: of('target') ?? '', ms, route: of('route') ?? '', ...read, line }] : [];
  });
}

function byKind(found: SlowRequest[]) {
  const groups = new Map<string, { name: string; count: number; maxMs: number; sum: number }>();
  for (const { method, route, ms } of found) {
    const name = `${method} ${route}`;
    const group = groups.get(name) ?? { name, count: 0, maxMs: 0, sum: 0 };
    groups.set(name, { name, count: group.count + 1, maxMs: Math.max(group.maxMs, ms), sum: group.sum + ms });
  }
  return [...groups.values()].sort((a, b) => b.sum - a.sum);
}

export function Slow() {
  const result = useRequest((signal) => readLog(1_000_000, signal).then(slowRequests), [], 5000);
  const found = result.data ?? [];
  const slowest = found.toSorted((a, b) => b.ms - a.ms).slice(0, 100);
  const groups = byKind(found);
  return (
    <>
      <PageHead title="Slow requests" note={<>Requests that took longer than <Link to={['config']} query={{ section: 'log' }}>[log] slow_request_ms</Link>, from the newest lines of the log</>}>{found.length > 0 && <Export name="slow-requests" source={() => objectSource(found)} />}<CopyAs request={{ method: 'GET', path: '_log?bytes=1000000' }} /></PageHead>
      {isMissing(result.error) ? <NoLog /> : <Problem error={result.error} />}
      {!result.data && !result.error && <Skeleton />}
      {result.data && found.length === 0 && <Card><Empty icon="clock" title="No slow requests">No recent request took longer than the limit.</Empty></Card>}
      {found.length > 0 && (
        <>
          <Card flush title="By kind"><div class="table-wrap"><table><caption class="unseen">Slow requests by kind</caption><thead><tr><th scope="col">Request</th><th scope="col" class="num">Count</th><th scope="col" class="num">Slowest</th><th scope="col" class="num">Total</th></tr></thead>
            <tbody>{groups.map((group) => <tr key={group.name}><td class="mono">{group.name}</td><td class="num">{number(group.count)}</td><td class="num">{millis(group.maxMs)}</td><td class="num">{millis(group.sum)}</td></tr>)}</tbody></table></div></Card>
          <Card flush title="Slowest"><div class="table-wrap"><table><caption class="unseen">Slowest requests</caption><thead><tr><th scope="col" class="num">Took</th><th scope="col">Request</th><th scope="col">Reads</th><th scope="col" class="num">Entries</th><th scope="col" class="num">Bytes</th></tr></thead>
            <tbody>{slowest.map((request, index) => <tr key={index}><td class="num">{millis(request.ms)}</td><td class="mono break">{request.method} {request.target}</td><td class="tight"><Reads request={request} /></td><td class="num">{number(request.entries)}</td><td class="num">{bytes(request.read)}</td></tr>)}</tbody></table></div></Card>
        </>
      )}
    </>
  );
}

/** The kind of data that a request reads, with a link to the view or the plan of the query. */
function Reads({ request }: { request: SlowRequest }) {
  const [db = '', ...rest] = (request.target.split('?')[0] ?? '').replace(/^\//, '').split('/').map((part) => decodeURIComponent(part));
  if (rest[0] === '_design' && rest[2] === '_view') return <span class="row"><Tag>index</Tag><Link to={['db', db, 'view', rest[1] ?? '', rest[3] ?? '']}>Open the view</Link></span>;
  if (rest[0] === '_find') return <span class="row"><Tag>query</Tag><Link to={['db', db, 'query']} query={{ show: 'plan' }}>Explain</Link></span>;
  if (rest[0] === '_all_docs') return <Tag>documents by id</Tag>;
  if (rest[0] === '_changes') return <Tag>changes</Tag>;
  return <Tag>{request.route.split('/').pop() ?? ''}</Tag>;
}
