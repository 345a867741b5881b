/** Information about the node and its cluster, and checks. */
import { get } from '../api/http.ts';
import { sessionState } from '../api/session.ts';
import { href } from '../router.ts';
import { Card, Link, PageHead, Problem, Skeleton, Tag } from '../ui/kit.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { useSignal } from '../ui/signal.ts';
import { useRequest } from '../ui/use.ts';
import { bytes, duration, number } from '../ui/words.ts';

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

/** Shows a tree of values as lines with names such as `memory / resident`. */
function Facts({ of }: { of: Record<string, unknown> }) {
  const lines: [string, string][] = [];
  const walk = (value: unknown, name: string) => {
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) for (const [key, inner] of Object.entries(value)) walk(inner, name === '' ? key : `${name} / ${key}`);
    else lines.push([name.replaceAll('_', ' '), typeof value === 'number' ? figure(name, value) : typeof value === 'string' ? value : JSON.stringify(value)]);
  };
  walk(of, '');
  return <dl class="facts">{lines.map(([name, text]) => <><dt key={name}>{name}</dt><dd>{text}</dd></>)}</dl>;
}

export function Server() {
  const { welcome } = useSignal(sessionState);
  const versions = useRequest((signal) => get<Record<string, unknown>>('_node/_local/_versions', signal).catch(() => undefined), []);
  const members = useRequest((signal) => get<{ all_nodes: string[]; cluster_nodes: string[] }>('_membership', signal), []);
  const node = useRequest((signal) => get<{ name: string }>('_node/_local', signal), []);
  const checkResults = useRequest(checks, []);
  const system = useRequest((signal) => get<Record<string, unknown>>('_node/_local/_system', signal), []);
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
            {!members.data ? <Skeleton lines={2} /> : (
              <ul class="key-list">{members.data.cluster_nodes.map((name) => <li key={name} class="row spread"><span class="mono">{name}</span><Tag kind={members.data?.all_nodes.includes(name) ? 'good' : 'bad'}>{members.data?.all_nodes.includes(name) ? 'connected' : 'disconnected'}</Tag></li>)}</ul>
            )}
          </Card>
          <Card title="Checks">
            {!checkResults.data ? <Skeleton lines={3} /> : <ul class="stack small">{checkResults.data.map((check) => <li key={check.text} class="row"><Tag kind={check.state}>{check.state === 'good' ? 'ok' : check.state === 'warn' ? 'warning' : 'failed'}</Tag><span>{check.text}</span><span class="note">{check.note}</span></li>)}</ul>}
            <p class="note"><Link to={['logs']}>Logs</Link> and the <Link to={['dashboard']}>dashboard</Link> show the state of the server.</p>
          </Card>
        </div>
        <div class="stack">
          {versions.data && <Card title="Versions"><Facts of={versions.data} /></Card>}
          {system.data && <Card title="System"><Facts of={system.data} /></Card>}
        </div>
      </div>
    </>
  );
}
