/** Information about the node and its cluster, and checks. */
import { get } from '../api/http.ts';
import { sessionState } from '../api/session.ts';
import { href } from '../router.ts';
import { Card, Link, PageHead, Problem, Skeleton, Tag } from '../ui/kit.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { useSignal } from '../ui/signal.ts';
import { useRequest } from '../ui/use.ts';
import { bytes, duration, millis, number, plural } from '../ui/words.ts';

interface Members {
  all_nodes: string[];
  cluster_nodes: string[];
  /** Numbers of the groups of databases that each node owns, if the data are in object storage. */
  groups?: Record<string, number[]>;
  coordinator?: string | null;
}

interface Check {
  text: string;
  state: 'good' | 'warn' | 'bad';
  note: string;
}

/** Read-only counterpart of "verify installation" in Fauxton. */
async function checks(signal: AbortSignal): Promise<Check[]> {
  const up = await get<{ status: string }>('_up', signal).then(({ status }): Check => ({ text: 'The server is up', state: status === 'ok' ? 'good' : 'warn', note: status === 'ok' ? '' : status }), (error: Error): Check => ({ text: 'The server is up', state: 'bad', note: error.message }));
  const system = await Promise.all(['_users', '_replicator'].map((name) => get(name, signal).then((): Check => ({ text: `${name} exists`, state: 'good', note: '' }), (): Check => ({ text: `${name} is missing`, state: 'warn', note: name === '_users' ? 'users cannot be created' : 'replications cannot be stored' }))));
  const admin: Check = sessionState.value.session.name === null ? { text: 'The server has no administrator', state: 'bad', note: 'every client that reaches it has all permissions' } : { text: 'The server has an administrator', state: 'good', note: '' };
  return [up, admin, ...system];
}

/** Formats a figure of `_system`. */
const figure = (name: string, value: number) => (/^memory \/|bytes$/.test(name) ? bytes(value) : name === 'uptime' ? duration(value) : number(value));

/** Numbers of an engine on object storage, with their labels. */
const STORAGE: [name: string, label: string, format: (value: number) => string][] = [
  ['store_put_requests', 'Puts', number],
  ['store_get_requests', 'Gets', number],
  ['store_head_requests', 'Heads', number],
  ['store_list_requests', 'Lists', number],
  ['store_delete_requests', 'Deletes', number],
  ['store_copy_requests', 'Copies', number],
  ['store_request_errors', 'Errors', number],
  ['store_sent_bytes', 'Sent', bytes],
  ['store_received_bytes', 'Received', bytes],
  ['log_stalled_ms', 'Lag', millis],
  ['owned_groups', 'Owned groups', number],
  ['open_groups', 'Open groups', number],
];

/** Separates the lines of object storage from `_system`. `storage` is undefined if the server has another engine. */
export function splitSystem(system: Record<string, unknown>): { storage: [string, string][] | undefined; rest: Record<string, unknown> } {
  const engine = (system['engine'] ?? {}) as Record<string, number>;
  if (engine['store_put_requests'] === undefined) return { storage: undefined, rest: system };
  const storage = STORAGE.flatMap(([name, label, format]): [string, string][] => (engine[name] === undefined ? [] : [[label, format(engine[name])]]));
  const others = Object.entries(engine).filter(([name]) => !STORAGE.some(([shown]) => shown === name));
  return { storage, rest: { ...system, engine: Object.fromEntries(others) } };
}

/** Shows a tree of values as lines with names such as `memory / resident`. */
function Facts({ of }: { of: Record<string, unknown> }) {
  const lines: [string, string][] = [];
  const walk = (value: unknown, name: string) => {
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) for (const [key, inner] of Object.entries(value)) walk(inner, name === '' ? key : `${name} / ${key}`);
    else lines.push([name.replaceAll('_', ' '), typeof value === 'number' ? figure(name, value) : typeof value === 'string' ? value : JSON.stringify(value)]);
  };
  walk(of, '');
  return <Lines of={lines} />;
}

function Lines({ of }: { of: [string, string][] }) {
  return <dl class="facts">{of.map(([name, text]) => <><dt key={name}>{name}</dt><dd>{text}</dd></>)}</dl>;
}

function Member({ name, of }: { name: string; of: Members }) {
  const isConnected = of.all_nodes.includes(name);
  const groups = of.groups?.[name];
  return (
    <li class="row spread">
      <span class="mono">{name}</span>
      <span class="row">
        {groups && <span class="note" title={groups.join(', ')}>{plural(groups.length, 'group')}</span>}
        {of.coordinator === name && <Tag kind="accent">coordinator</Tag>}
        <Tag kind={isConnected ? 'good' : 'bad'}>{isConnected ? 'connected' : 'disconnected'}</Tag>
      </span>
    </li>
  );
}

export function Server() {
  const { welcome } = useSignal(sessionState);
  const versions = useRequest((signal) => get<Record<string, unknown>>('_node/_local/_versions', signal).catch(() => undefined), []);
  const members = useRequest((signal) => get<Members>('_membership', signal), []);
  const node = useRequest((signal) => get<{ name: string }>('_node/_local', signal), []);
  const checkResults = useRequest(checks, []);
  const system = useRequest((signal) => get<Record<string, unknown>>('_node/_local/_system', signal).then(splitSystem), []);
  return (
    <>
      <PageHead title="Server"><a class="button plain" href={href(['servers'], {}, '')}>All servers</a><CopyAs request={{ method: 'GET', path: '' }} /></PageHead>
      <Problem error={members.error} />
      <div class="grid-2">
        <div class="stack">
          <Card title="This node">
            <dl class="facts">
              <dt>Product</dt><dd>{welcome?.vendor} {welcome?.version}</dd>
              <dt>Name</dt><dd class="mono">{node.data?.name ?? '…'}</dd>
              <dt>UUID</dt><dd class="mono">{welcome?.uuid}</dd>
              <dt>Features</dt><dd><span class="chips">{welcome?.features.map((feature) => <Tag key={feature}>{feature}</Tag>)}</span></dd>
            </dl>
          </Card>
          <Card title="Cluster">
            {!members.data ? <Skeleton lines={2} /> : <ul class="key-list">{members.data.cluster_nodes.map((name) => members.data && <Member key={name} name={name} of={members.data} />)}</ul>}
          </Card>
          <Card title="Checks">
            {!checkResults.data ? <Skeleton lines={3} /> : <ul class="stack small">{checkResults.data.map((check) => <li key={check.text} class="row"><Tag kind={check.state}>{check.state === 'good' ? 'ok' : check.state === 'warn' ? 'warning' : 'failed'}</Tag><span>{check.text}</span><span class="note">{check.note}</span></li>)}</ul>}
            <p class="note"><Link to={['logs']}>Logs</Link> and the <Link to={['dashboard']}>dashboard</Link> show the state of the server.</p>
          </Card>
        </div>
        <div class="stack">
          {versions.data && <Card title="Versions"><Facts of={versions.data} /></Card>}
          {system.data?.storage && <Card title="Object storage" note="Requests and bytes since the start"><Lines of={system.data.storage} /></Card>}
          {system.data && <Card title="System"><Facts of={system.data.rest} /></Card>}
        </div>
      </div>
    </>
  );
}
