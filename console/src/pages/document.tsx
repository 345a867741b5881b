/** One document: its text, conflicts, revisions and attachments. The text is what the server stores, number for number. */
import { useEffect, useState } from 'preact/hooks';
import { ApiError, docPath, enc, get, query, send } from '../api/http.ts';
import { documentProblems } from '../json/problems.ts';
import { format, member, parse, plain, raw, stringOf, withMembers } from '../json/text.ts';
import { go, release, useLeaveGuard, useParam, useRoute } from '../router.ts';
import { Editor } from '../ui/editor.tsx';
import { Button, Confirm, Dialog, Field, Link, LinkButton, Notice, PageHead, Problem, Skeleton, Tabs, Tag, say } from '../ui/kit.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { useCommands } from '../ui/palette.tsx';
import { useAction, useAsk, useTitle } from '../ui/use.ts';
import { bytes } from '../ui/words.ts';
import { Attachments, type Stub } from './attachments.tsx';
import type { DbPage } from './db.tsx';
import { Conflicts, Difference } from './conflicts.tsx';

export interface Loaded {
  id: string;
  rev: string;
  /** As it is edited: without what was asked for besides. */
  text: string;
  conflicts: string[];
  revs: { rev: string; status: string }[];
  attachments: Stub[];
  deleted: boolean;
}

export async function load(db: string, id: string, rev: string, signal?: AbortSignal): Promise<Loaded> {
  const params = rev === '' ? { conflicts: true, revs_info: true } : { rev };
  const { text } = await send('GET', `${enc(db)}/${docPath(id)}${query(params)}`, { signal: signal });
  const root = parse(text);
  const own = withMembers(text, { _conflicts: undefined, _revs_info: undefined });
  const list = (name: string) => member(root, name)?.children ?? [];
  const stubs = member(root, '_attachments');
  return {
    id, rev: stringOf(text, member(root, '_rev')) ?? '', text: format(own),
    conflicts: list('_conflicts').map((node) => plain(text, node)),
    revs: list('_revs_info').map((node) => JSON.parse(raw(text, node)) as { rev: string; status: string }),
    attachments: (stubs?.keys ?? []).map((name, index) => ({ name, ...(JSON.parse(raw(text, stubs?.children?.[index] ?? root)) as Omit<Stub, 'name'>) })),
    deleted: raw(text, member(root, '_deleted') ?? { kind: 'literal', start: 0, end: 0 }) === 'true',
  };
}

export function Document({ db }: DbPage) {
  const { path } = useRoute();
  const id = path[3] ?? '';
  useTitle(id);
  const [tab] = useParam('tab', 'edit');
  const [rev] = useParam('rev');
  const [dialog, setDialog] = useParam('do');
  const asked = useAsk((signal) => load(db, id, rev, signal), [db, id, rev]);
  const doc = asked.data;
  const isDesign = id.startsWith('_design/');
  useCommands([
    { text: 'Clone this document', where: 'Action', icon: 'copy', act: () => setDialog('clone') },
    { text: 'Delete this document', where: 'Action', icon: 'trash', act: () => setDialog('delete') },
  ], [id]);
  const to = (name: string) => ({ to: ['db', db, 'doc', id], query: name === 'edit' ? {} : { tab: name }, current: tab === name && rev === '' });
  return (
    <>
      <PageHead title={id} note={<span class="row"><span class="mono">{doc?.rev ?? '…'}</span>{rev !== '' && <Tag kind="warn">an older revision</Tag>}{doc?.deleted && <Tag kind="bad">deleted</Tag>}{doc && doc.conflicts.length > 0 && <Tag kind="warn">in conflict</Tag>}</span>}>
        <CopyAs request={{ method: 'GET', path: `${enc(db)}/${docPath(id)}${query({ rev })}` }} />
        {isDesign && <LinkButton to={['db', db, 'design', id.slice(8)]} icon="code">Functions</LinkButton>}
        <Button icon="copy" onClick={() => setDialog('clone')}>Clone</Button>
        <Button kind="danger" icon="trash" onClick={() => setDialog('delete')}>Delete</Button>
      </PageHead>
      <Tabs label="Parts of the document" items={[
        { text: 'Document', ...to('edit') },
        { text: <>Conflicts {doc && doc.conflicts.length > 0 && <Tag kind="warn">{doc.conflicts.length}</Tag>}</>, ...to('conflicts') },
        { text: 'Revisions', ...to('revisions') },
        { text: <>Attachments {doc && doc.attachments.length > 0 && <Tag>{doc.attachments.length}</Tag>}</>, ...to('attachments') },
      ]} />
      <Problem error={asked.error} again={asked.again} />
      {!doc && !asked.error && <Skeleton lines={10} />}
      {doc && tab === 'edit' && <Edit key={`${doc.rev} ${rev}`} db={db} doc={doc} readOnly={rev !== ''} again={asked.again} />}
      {doc && tab === 'conflicts' && <Conflicts db={db} doc={doc} again={asked.again} />}
      {doc && tab === 'revisions' && <Revisions db={db} doc={doc} />}
      {doc && tab === 'attachments' && <Attachments db={db} doc={doc} again={asked.again} />}
      {dialog === 'clone' && <Clone db={db} id={id} onClose={() => setDialog('')} />}
      {dialog === 'delete' && doc && <Remove db={db} doc={doc} onClose={() => setDialog('')} />}
    </>
  );
}

function Edit({ db, doc, readOnly, again }: { db: string; doc: Loaded; readOnly: boolean; again: () => void }) {
  const [text, setText] = useState(doc.text);
  const [theirs, setTheirs] = useState<Loaded>();
  const { busy, error, run } = useAction();
  const isChanged = text !== doc.text;
  useLeaveGuard(isChanged && !readOnly);
  const put = async (body: string) => {
    const answer = await send('PUT', `${enc(db)}/${docPath(doc.id)}`, { body });
    const { rev } = JSON.parse(answer.text) as { rev: string };
    release();
    say(`Saved as ${rev}.`);
    setTheirs(undefined);
    again();
  };
  const save = () => {
    if (readOnly || busy) return;
    void run(async () => {
      try {
        await put(text);
      } catch (problem) {
        if (!(problem instanceof ApiError) || problem.status !== 409) throw problem;
        setTheirs(await load(db, doc.id, ''));
      }
    });
  };
  if (theirs) {
    return (
      <div class="stack">
        <Notice kind="warn">Somebody else saved this document while you edited it. Below are their text on the left and yours on the right.</Notice>
        <Difference left={theirs.text} right={text} leftName={`Theirs, ${theirs.rev}`} rightName="Yours" />
        <Problem error={error} />
        <div class="actions">
          <Button kind="primary" busy={busy} onClick={() => void run(() => put(withMembers(text, { _rev: JSON.stringify(theirs.rev) })))}>Save mine over theirs</Button>
          <Button onClick={() => { release(); setTheirs(undefined); again(); }}>Take theirs</Button>
          <Button onClick={() => { setText(format(withMembers(text, { _rev: JSON.stringify(theirs.rev) }))); setTheirs(undefined); }}>Edit on</Button>
        </div>
      </div>
    );
  }
  return (
    <div class="doc-area fills">
      <div class="row spread">
        <div class="actions">
          {!readOnly && <Button kind="primary" icon="check" busy={busy} disabled={!isChanged} onClick={save}>Save</Button>}
          {!readOnly && <Button onClick={() => void run(async () => { setText(await Promise.resolve(format(text))); })}>Format</Button>}
          {isChanged && !readOnly && <Button kind="quiet" onClick={() => setText(doc.text)}>Undo all</Button>}
          {readOnly && <LinkButton to={['db', db, 'doc', doc.id]} icon="history">To the newest revision</LinkButton>}
        </div>
        <span class="note">{bytes(text.length)}{isChanged ? ' · not saved' : ''} <span class="hide-small">· <kbd>Ctrl S</kbd> saves</span></span>
      </div>
      <Problem error={error} />
      <Editor label={`JSON of ${doc.id}`} language="json" value={text} onValue={setText} readOnly={readOnly} problems={documentProblems} onSave={save} lines="fill" />
    </div>
  );
}

function Revisions({ db, doc }: { db: string; doc: Loaded }) {
  const [shown, setShown] = useParam('show');
  const available = doc.revs.filter(({ status }) => status === 'available');
  const chosen = shown || available[1]?.rev || '';
  const other = useAsk((signal) => (chosen === '' ? Promise.resolve(undefined) : load(db, doc.id, chosen, signal)), [db, doc.id, chosen]);
  return (
    <div class="config">
      <nav aria-label="Revisions">
        <ul class="revs">
          {doc.revs.map(({ rev, status }) => (
            <li key={rev}>
              {status === 'available'
                ? <a href={`#${rev}`} onClick={(event) => { event.preventDefault(); setShown(rev); }} aria-current={rev === chosen ? 'true' : undefined}><span class="mono cut">{rev.slice(0, 14)}…</span>{rev === doc.rev && <Tag kind="accent">current</Tag>}</a>
                : <span class="row note" style={{ padding: '6px 10px' }}><span class="mono">{rev.slice(0, 14)}…</span>{status}</span>}
            </li>
          ))}
        </ul>
      </nav>
      <div class="stack">
        {available.length < 2 && <Notice>Only the current revision has its text here: older ones go with compaction. This is no version control.</Notice>}
        <Problem error={other.error} />
        {other.data && other.data.rev !== doc.rev && <Difference left={other.data.text} right={doc.text} leftName={other.data.rev} rightName={`Current, ${doc.rev}`} />}
        {other.data && <div class="actions"><LinkButton to={['db', db, 'doc', doc.id]} query={{ rev: other.data.rev }} icon="file">Open this revision</LinkButton></div>}
      </div>
    </div>
  );
}

function Clone({ db, id, onClose }: { db: string; id: string; onClose: () => void }) {
  const [name, setName] = useState('');
  const { busy, error, run } = useAction();
  useEffect(() => {
    get<{ uuids: string[] }>('_uuids').then(({ uuids }) => setName((old) => old || (id.startsWith('_design/') ? `${id}-copy` : (uuids[0] ?? '')))).catch(() => {});
  }, [id]);
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      await send('COPY', `${enc(db)}/${docPath(id)}`, { headers: { Destination: docPath(name) } });
      say(`Cloned as ${name}.`);
      go(['db', db, 'doc', name]);
    });
  };
  return (
    <Dialog title="Clone this document" onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <Field label="Id of the clone" value={name} onValue={setName} required mono autofocus hint="Attachments are copied too." />
        <Problem error={error} />
        <div class="actions end"><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit" busy={busy}>Clone</Button></div>
      </form>
    </Dialog>
  );
}

function Remove({ db, doc, onClose }: { db: string; doc: Loaded; onClose: () => void }) {
  const act = async () => {
    await send('DELETE', `${enc(db)}/${docPath(doc.id)}${query({ rev: doc.rev })}`);
    release();
    say(`${doc.id} is deleted.`);
    go(['db', db]);
  };
  return (
    <Confirm title="Delete this document?" verb="Delete" act={act} onClose={onClose}>
      <p class="break"><strong>{doc.id}</strong></p>
      {doc.conflicts.length > 0 && <p>It has conflicting revisions: one of them will be shown instead.</p>}
    </Confirm>
  );
}

export function NewDocument({ db, info }: DbPage) {
  useTitle(`New document in ${db}`);
  const [kind] = useParam('kind');
  const [text, setText] = useState('');
  const [start, setStart] = useState('');
  const { busy, error, run } = useAction();
  useEffect(() => {
    const begin = (id: string) => {
      const full = info?.props?.partitioned ? `partition:${id}` : id;
      const made = `{\n  "_id": ${JSON.stringify(kind === 'local' ? `_local/${id}` : full)}\n}`;
      setText(made);
      setStart(made);
    };
    get<{ uuids: string[] }>('_uuids').then(({ uuids }) => begin(uuids[0] ?? '')).catch(() => begin(''));
  }, [db, kind]);
  useLeaveGuard(text !== start);
  const save = () => void run(async () => {
    const root = parse(text);
    const id = stringOf(text, member(root, '_id'));
    const answer = id === undefined || id === '' ? await send('POST', enc(db), { body: withMembers(text, { _id: undefined }) }) : await send('PUT', `${enc(db)}/${docPath(id)}`, { body: text });
    const made = JSON.parse(answer.text) as { id: string };
    release();
    say(`${made.id} is created.`);
    go(['db', db, 'doc', made.id]);
  });
  return (
    <>
      <PageHead title="New document" note={<>In <Link to={['db', db]}>{db}</Link>. Without an _id the server makes one.</>} />
      <div class="doc-area fills">
        <div class="actions"><Button kind="primary" icon="check" busy={busy} onClick={save}>Create</Button><Button onClick={() => { try { setText(format(text)); } catch { /* The editor marks what is wrong. */ } }}>Format</Button></div>
        <Problem error={error} />
        <Editor label="JSON of the new document" language="json" value={text} onValue={setText} problems={documentProblems} onSave={save} lines="fill" />
      </div>
    </>
  );
}

