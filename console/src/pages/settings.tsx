/** Figures, permissions and maintenance of a database. */
import { useState } from 'preact/hooks';
import { people } from '../api/choices.ts';
import { get, post, put, send } from '../api/http.ts';
import { docPath, path as pathOf } from '../api/paths.ts';
import { isAdmin } from '../api/session.ts';
import { go } from '../router.ts';
import { ChoiceField } from '../ui/choice.tsx';
import { Restored, useDraft, useForm } from '../ui/draft.tsx';
import { Button, Card, Confirm, Field, Notice, Problem, Skeleton, Tag, TextArea, showToast } from '../ui/kit.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { bytes, number, plural } from '../ui/words.ts';
import { DeleteDatabase } from './databases.tsx';
import type { DbPage } from './db.tsx';

export function Settings({ db, info, again }: DbPage) {
  const [confirming, setConfirming] = useState(false);
  return (
    <div class="grid-2">
      <div class="stack">
        <Card title="Figures">
          {!info ? <Skeleton lines={4} /> : (
            <dl class="facts">
              <dt>Documents</dt><dd>{number(info.doc_count)}, and {number(info.doc_del_count)} deleted</dd>
              <dt>Data</dt><dd>{bytes(info.sizes.external)}</dd>
              <dt>On disk</dt><dd>{bytes(info.sizes.file)}, of which {bytes(info.sizes.active)} in use</dd>
              <dt>Update sequence</dt><dd class="mono">{String(info.update_seq)}</dd>
              <dt>Purge sequence</dt><dd class="mono">{String(info.purge_seq)}</dd>
              <dt>Partitioned</dt><dd>{info.props?.partitioned ? 'yes' : 'no'}</dd>
            </dl>
          )}
        </Card>
        <Limits db={db} />
        {isAdmin() && <Maintenance db={db} running={info?.compact_running ?? false} again={again} />}
        {isAdmin() && <Purge db={db} again={again} />}
      </div>
      <div class="stack">
        <Permissions db={db} />
        {isAdmin() && (
          <Card title="Delete this database" note="This deletes all its documents and views.">
            <div class="actions"><Button kind="danger" icon="trash" onClick={() => setConfirming(true)}>Delete database</Button></div>
          </Card>
        )}
      </div>
      {confirming && <DeleteDatabase name={db} onClose={() => setConfirming(false)} onDone={() => go(['databases'])} />}
    </div>
  );
}

interface Group {
  names?: string[];
  roles?: string[];
}

interface Security {
  admins?: Group;
  members?: Group;
}

function Permissions({ db }: { db: string }) {
  const result = useRequest((signal) => get<Security>(pathOf`${db}/_security`, signal), [db]);
  const known = useRequest((signal) => (isAdmin() ? people(signal) : Promise.resolve(undefined)), []);
  const original = JSON.stringify(result.data ?? {});
  const edited = useDraft(['security', db], original, original);
  const { busy, error, run } = useAction();
  if (result.error) return <Card title="Permissions"><Problem error={result.error} /></Card>;
  if (!result.data) return <Card title="Permissions"><Skeleton lines={4} /></Card>;
  const draft = JSON.parse(edited.text) as Security;
  const members = draft.members ?? {};
  const isOpen = (members.names ?? []).length + (members.roles ?? []).length === 0;
  const set = (group: 'admins' | 'members', kind: 'names' | 'roles', list: string[]) => edited.setText(JSON.stringify({ ...draft, [group]: { ...draft[group], [kind]: list } }));
  const save = () => void run(async () => {
    await put(pathOf`${db}/_security`, draft);
    result.put(draft);
    edited.saved(edited.text, { base: edited.text, rebase: (typed) => typed });
    showToast('Permissions are saved.');
    result.again();
  });
  const { isChanged } = edited;
  return (
    <Card title="Permissions" note={isOpen ? 'Without members, every client that can connect to the server can read and write this database.' : 'Members read and write; admins also change design documents and this page.'}>
      {isOpen && <Tag kind="warn">open to all clients</Tag>}
      {edited.isStale && !busy ? <Notice kind="warn"><p>The permissions have changed since you edited them.</p><p><Button onClick={edited.discard}>Discard mine</Button></p></Notice> : <Restored found={edited.restored} onDiscard={edited.discard} />}
      {(['admins', 'members'] as const).map((group) => (
        <div key={group} class="stack small">
          <h3>{group === 'admins' ? 'Admins' : 'Members'}</h3>
          {(['names', 'roles'] as const).map((kind) => <Names key={kind} keyPath={[db, group, kind]} label={`${kind === 'names' ? 'Users' : 'Roles'} that are ${group}`} choices={known.data?.[kind] ?? []} list={draft[group]?.[kind] ?? []} onList={(list) => set(group, kind, list)} />)}
        </div>
      ))}
      <Problem error={error} />
      <div class="actions"><Button kind="primary" busy={busy} disabled={!isChanged} onClick={save}>Save permissions</Button>{isChanged && <Button kind="quiet" onClick={edited.discard}>Undo</Button>}</div>
    </Card>
  );
}

function Names({ keyPath, label, choices, list, onList }: { keyPath: string[]; label: string; choices: string[]; list: string[]; onList: (list: string[]) => void }) {
  const typed = useDraft(['security name', ...keyPath], '', '');
  const { text, setText } = typed;
  const add = (event: Event) => {
    event.preventDefault();
    const name = text.trim();
    if (name !== '' && !list.includes(name)) onList([...list, name]);
    setText('');
  };
  return (
    <form onSubmit={add} class="stack small">
      <div class="row end"><div class="grow"><ChoiceField label={label} value={text} onValue={setText} choices={choices.filter((name) => !list.includes(name))} autocomplete="off" /></div><Button type="submit" icon="plus" disabled={text.trim() === ''}>Add</Button></div>
      {list.length > 0 && <div class="chips">{list.map((name) => <span key={name} class="tag">{name}<button type="button" aria-label={`Remove ${name}`} onClick={() => onList(list.filter((each) => each !== name))}>×</button></span>)}</div>}
    </form>
  );
}

function Limits({ db }: { db: string }) {
  const result = useRequest((signal) => get<number>(pathOf`${db}/_revs_limit`, signal), [db]);
  const known = String(result.data ?? '');
  const edited = useDraft(['revs_limit', db], known, known);
  const { text, setText } = edited;
  const { busy, error, run } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      await send('PUT', pathOf`${db}/_revs_limit`, { body: text });
      result.put(Number(text));
      edited.discard();
      showToast('The limit is saved.');
      result.again();
    });
  };
  return (
    <Card title="Revisions" note="If the limit is too low, replication reports conflicts that do not exist.">
      <form class="row end" onSubmit={submit}>
        <div class="grow"><Field label="Revision ids kept for each document" type="number" min="1" value={text} onValue={setText} /></div>
        <Button type="submit" busy={busy} disabled={text === '' || text === String(result.data ?? '')}>Save</Button>
      </form>
      <Restored found={edited.restored} onDiscard={edited.discard} />
      <Problem error={error ?? result.error} />
    </Card>
  );
}

function Maintenance({ db, running, again }: { db: string; running: boolean; again: () => void }) {
  const { busy, error, run } = useAction();
  const start = (path: string, text: string) => void run(async () => {
    await post(`${pathOf`${db}`}/${path}`, {});
    showToast(text);
    again();
  });
  return (
    <Card title="Maintenance">
      <div class="actions">
        <Button busy={busy} onClick={() => start('_compact', 'Compaction is started.')}>Compact</Button>
        <Button busy={busy} onClick={() => start('_view_cleanup', 'Unused indexes are removed.')}>Clean up indexes</Button>
        {running && <Tag kind="accent">compacting</Tag>}
      </div>
      <p class="note">Compaction frees the space of old revisions. The server also starts it automatically.</p>
      <Problem error={error} />
    </Card>
  );
}

/** Purging removes revisions without tombstones, so it does not replicate. */
function Purge({ db, again }: { db: string; again: () => void }) {
  const form = useForm(['purge', db], { ids: '' });
  const { ids } = form.value;
  const [revisions, setRevisions] = useState<Record<string, string[]>>();
  const { busy, error, run } = useAction();
  const findRevisions = () => void run(async () => {
    const list = ids.split('\n').map((id) => id.trim()).filter((id) => id !== '');
    const found: Record<string, string[]> = {};
    for (const id of list) {
      const leaves = await get<{ ok?: { _rev: string } }[]>(`${docPath(db, id)}?open_revs=all`);
      const revs = leaves.flatMap(({ ok }) => (ok ? [ok._rev] : []));
      if (revs.length > 0) found[id] = revs;
    }
    if (Object.keys(found).length === 0) throw new Error('None of these documents exists in the database.');
    setRevisions(found);
  });
  return (
    <Card title="Purge documents" note="Purging cannot be undone. Other replicas keep their copies, and a replication from them brings the documents back.">
      <TextArea label="Ids, one per line" value={ids} onValue={(typed) => form.set({ ids: typed })} rows={3} mono />
      <Restored found={form.restored} onDiscard={form.discard} />
      <Problem error={error} />
      <div class="actions"><Button kind="danger" busy={busy} disabled={ids.trim() === ''} onClick={findRevisions}>Purge …</Button></div>
      {revisions && (
        <Confirm title={`Purge ${plural(Object.keys(revisions).length, 'document')}?`} verb="Purge" typed="purge" onClose={() => setRevisions(undefined)} act={async () => {
          await post(pathOf`${db}/_purge`, revisions);
          showToast('Purged.');
          form.discard();
          again();
        }}><p>All their revisions: {Object.entries(revisions).map(([id, revs]) => `${id} (${revs.length})`).join(', ')}</p></Confirm>
      )}
    </Card>
  );
}
