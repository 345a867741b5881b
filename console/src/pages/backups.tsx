/** Scheduled backups of the server: configuration, state, and the commands of a restore. */
import { useState } from 'preact/hooks';
import { backups, restart, startBackup, type Attempt, type Backups } from '../api/backup.ts';
import { setConfig } from '../api/config.ts';
import { Button, Card, Confirm, Empty, Field, Json, Meter, Notice, PageHead, Problem, Skeleton, Stat, Tag, showToast } from '../ui/kit.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { ago, bytes, duration, number, plural } from '../ui/words.ts';

const EVERY_MS = 1500;
const SHOWN = 20;

export function BackupsPage() {
  const result = useRequest(backups, [], EVERY_MS);
  const { busy, error, run } = useAction();
  const state = result.data;
  const start = () => void run(async () => {
    await startBackup();
    showToast('A backup was started.');
    result.again();
  });
  return (
    <>
      <PageHead title="Backups" note={state?.configured ? state.location : undefined}>
        {state?.configured && <><Button kind="primary" icon="play" busy={busy || state.running !== null} onClick={start}>Back up now</Button><CopyAs request={{ method: 'POST', path: '_node/_local/_backup', body: '{}' }} /></>}
      </PageHead>
      <Problem error={result.error} again={result.again} />
      <Problem error={error} />
      {result.loading && !state && !result.error && <Card flush><Skeleton /></Card>}
      {!result.loading && !state && !result.error && <Card flush><Empty icon="history" title="This server reports no backups">Settee writes backups of all databases into an S3 bucket. Back up other servers with their own tools or by replication.</Empty></Card>}
      {state?.configured === false && <Unset />}
      {state?.configured && <State state={state} />}
    </>
  );
}

function State({ state }: { state: Backups }) {
  const last = state.attempts.findLast(({ error }) => error === undefined);
  const { running, stored } = state;
  return (
    <>
      {running && (
        <Card title="A backup is running" note={`Started ${ago(new Date(running.started_ms))}`}>
          <Meter label="Progress of the backup" value={running.total_files === 0 ? 0 : (100 * running.files) / running.total_files} />
          <p class="note">{running.total_files === 0 ? 'The files are determined' : `${number(running.files)} of ${plural(running.total_files, 'file')}`} · {bytes(running.sent_bytes)} sent</p>
        </Card>
      )}
      <Card><dl class="stats">
        <Stat label="Newest backup" value={last ? ago(new Date(last.ended_ms)) : (stored.at(-1) ?? '–')} note={last ? `${bytes(last.bytes)}, of which ${bytes(last.sent_bytes)} were sent` : undefined} />
        <Stat label="Next backup" value={running ? 'now' : state.next_ms === null ? '–' : until(state.next_ms)} note={`Every ${duration(state.interval_ms / 1000)}`} />
        <Stat label="In the bucket" value={plural(stored.length, 'backup')} />
      </dl></Card>
      <div class="grid-2">
        <Card flush title="Attempts" note="Since the start of the server">
          {state.attempts.length === 0 ? <Empty icon="clock" title="No attempts yet">The next backup starts {running ? 'now' : 'at its time'}. “Back up now” starts one at once.</Empty> : <Attempts attempts={state.attempts.toReversed()} />}
        </Card>
        <Card title="Restore" note="On the machine of the new server. The data directory must not exist.">
          <Json label="Commands that restore a backup" text={[`settee restore --from ${state.location} --check`, `settee restore --from ${state.location} --data ./restored`, ...(stored.at(-1) === undefined ? [] : [`settee restore --from ${state.location} --backup ${stored.at(-1)} --data ./older`]), `settee restore --from ${state.location} --at newest --data ./newest`].join('\n')} />
          {stored.length > 0 && <><h3>{stored.length > SHOWN ? `The newest ${SHOWN} backups` : 'Backups'}</h3><ul class="key-list">{stored.slice(-SHOWN).toReversed().map((name) => <li key={name} class="mono">{name}</li>)}</ul></>}
        </Card>
      </div>
    </>
  );
}

const until = (ms: number) => (ms <= Date.now() ? 'now' : `in ${duration((ms - Date.now()) / 1000)}`);

function Attempts({ attempts }: { attempts: Attempt[] }) {
  return (
    <div class="table-wrap" tabIndex={0} role="region" aria-label="Attempts"><table>
      <caption class="unseen">Attempts</caption>
      <thead><tr><th scope="col">Started</th><th scope="col">Result</th><th scope="col" class="num">Took</th><th scope="col" class="num">Size</th><th scope="col" class="num">Sent</th></tr></thead>
      <tbody>{attempts.map(({ started_ms, ended_ms, bytes: size, sent_bytes, error }) => (
        <tr key={started_ms}>
          <td>{new Date(started_ms).toISOString().replace('T', ' ').slice(0, 19)}</td>
          <td>{error === undefined ? <Tag kind="good">written</Tag> : <><Tag kind="bad">failed</Tag> {error}</>}</td>
          <td class="num">{duration((ended_ms - started_ms) / 1000)}</td><td class="num">{bytes(size)}</td><td class="num">{bytes(sent_bytes)}</td>
        </tr>
      ))}</tbody>
    </table></div>
  );
}

const KEYS: { key: string; label: string; hint: string; required?: boolean; secret?: boolean }[] = [
  { key: 'url', label: 'Bucket and prefix', hint: 's3://bucket/prefix, with a prefix for each server', required: true },
  { key: 'endpoint', label: 'Endpoint', hint: 'https://host:port of the service; empty for AWS' },
  { key: 'access_key_id', label: 'Access key', hint: 'Empty for AWS_ACCESS_KEY_ID of the environment' },
  { key: 'secret_access_key', label: 'Secret of the access key', hint: 'Stored in the configuration of the server', secret: true },
  { key: 'interval', label: 'Seconds between backups', hint: 'Empty for one backup a day' },
];

function Unset() {
  const [values, setValues] = useState<Record<string, string>>({});
  const [isSaved, setSaved] = useState(false);
  const [isAsked, setAsked] = useState(false);
  const { busy, error, run } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      // The URL is set last, because it enables the backups.
      for (const { key } of KEYS.toReversed()) if (values[key]) await setConfig('backup', key, values[key]);
      setSaved(true);
      setAsked(true);
    });
  };
  return (
    <div class="grid-2">
      <Card title="No backups are configured">
        <p>With a bucket of an S3 service the server writes a backup of all databases every day, and its log every few seconds. A restore can select any time since the first backup.</p>
        <p class="note">Without a bucket, this command on the machine of the server writes a backup into a directory while the server runs:</p>
        <Json label="Command for a backup in a directory" text="settee backup --data DATA --to BACKUPS" />
      </Card>
      <Card title="Set up backups">
        <form class="stack" onSubmit={submit}>
          {KEYS.map(({ key, label, hint, required, secret }) => <Field key={key} label={label} hint={hint} type={secret ? 'password' : 'text'} autocomplete="off" value={values[key] ?? ''} onValue={(value) => setValues({ ...values, [key]: value })} required={required} mono />)}
          <Problem error={error} />
          {isSaved && <Notice>The settings are stored. They apply after a restart of the server.</Notice>}
          <div class="actions"><Button kind="primary" type="submit" busy={busy}>Save</Button>{isSaved && <Button icon="refresh" onClick={() => setAsked(true)}>Restart the server</Button>}</div>
        </form>
        {isAsked && <Confirm title="Restart the server?" verb="Restart" onClose={() => setAsked(false)} act={async () => { await restart(); showToast('The server is restarting.'); }}>
          <p>Open requests are completed first. Clients reconnect after a few seconds. The backups start with the new process.</p>
        </Confirm>}
      </Card>
    </div>
  );
}
