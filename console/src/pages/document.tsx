/** One document: its text, conflicts, revisions and attachments. The text is never converted to values, so numbers are not rounded. */
import { useEffect, useState } from 'preact/hooks';
import { draft, storeDraft } from '../api/drafts.ts';
import { deletionOf, restore, type Deletion } from '../api/undo.ts';
import { ApiError, creating, get, send } from '../api/http.ts';
import { docPath, idPath, isDocumentId, path as pathOf, query } from '../api/paths.ts';
import { documentProblems } from '../json/problems.ts';
import { format, member, parse, plain, raw, stringOf, withMembers } from '../json/text.ts';
import { go, useDialog, useParam, useRoute } from '../router.ts';
import { Restored, useDraft, type DraftState } from '../ui/draft.tsx';
import { Editor } from '../ui/editor.tsx';
import { Button, Card, Confirm, Dialog, Empty, Field, Link, LinkButton, Notice, PageHead, Problem, Segments, Skeleton, Tabs, Tag, showToast } from '../ui/kit.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { useCommands } from '../ui/palette.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { bytes } from '../ui/words.ts';
import { Attachments, type Stub } from './attachments.tsx';
import type { DbPage } from './db.tsx';
import { Conflicts, Difference } from './conflicts.tsx';
import { DocumentForm } from './form.tsx';
import { Readers, hasReaders } from './readers.tsx';
import { StringEditor } from './string-editor.tsx';

export interface Loaded {
  id: string;
  rev: string;
  /** The document without `_conflicts` and `_revs_info`. */
  text: string;
  conflicts: string[];
  revs: { rev: string; status: string }[];
  attachments: Stub[];
  deleted: boolean;
}

export async function load(db: string, id: string, rev: string, signal?: AbortSignal): Promise<Loaded> {
  const params = rev === '' ? { conflicts: true, revs_info: true } : { rev };
  const { text } = await send('GET', docPath(db, id) + query(params), { signal: signal });
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

export function Document(page: DbPage) {
  const { path } = useRoute();
  const id = path[3] ?? '';
  if (!isDocumentId(id)) return <Problem error={new Error(id === '' ? 'The address contains no document id.' : `${id} is reserved and not a document id.`)} />;
  return <DocumentPage {...page} id={id} />;
}

function DocumentPage({ db, info, id }: DbPage & { id: string }) {
  const [tab] = useParam('tab', 'edit');
  const [rev] = useParam('rev');
  const [dialog, setDialog] = useDialog();
  const result = useRequest((signal) => load(db, id, rev, signal), [db, id, rev]);
  const doc = result.data;
  const isDeleted = result.error instanceof ApiError && result.error.status === 404 && result.error.reason === 'deleted';
  const isDesign = id.startsWith('_design/');
  useCommands([
    { text: 'Clone this document', where: 'Action', icon: 'copy', act: () => setDialog('clone') },
    { text: 'Delete this document', where: 'Action', icon: 'trash', act: () => setDialog('delete') },
  ], [id]);
  const to = (name: string) => ({ to: ['db', db, 'doc', id], query: name === 'edit' ? {} : { tab: name }, current: tab === name && rev === '' });
  return (
    <>
      <PageHead title={id} note={<span class="row"><span class="mono">{doc?.rev ?? '…'}</span>{rev !== '' && <Tag kind="warn">an older revision</Tag>}{doc?.deleted && <Tag kind="bad">deleted</Tag>}{doc && doc.conflicts.length > 0 && <Tag kind="warn">in conflict</Tag>}</span>}>
        <CopyAs request={{ method: 'GET', path: docPath(db, id) + query({ rev }) }} />
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
      {isDeleted ? <Deleted db={db} id={id} again={result.again} /> : <Problem error={result.error} again={result.again} />}
      {!doc && !result.error && <Skeleton lines={10} />}
      {doc && tab === 'edit' && <Edit key={`${id} ${rev}`} db={db} doc={doc} isShared={hasReaders(info, id)} readOnly={rev !== ''} onSaved={result.put} again={result.again} />}
      {doc && tab === 'conflicts' && <Conflicts db={db} doc={doc} again={result.again} />}
      {doc && tab === 'revisions' && <Revisions db={db} doc={doc} again={result.again} />}
      {doc && tab === 'attachments' && <Attachments db={db} doc={doc} again={result.again} />}
      {dialog === 'clone' && <Clone db={db} id={id} onClose={() => setDialog('')} />}
      {dialog === 'delete' && doc && <Remove db={db} doc={doc} onClose={() => setDialog('')} />}
    </>
  );
}

/** Returns a function that replaces the revision `old` in a text by `rev`. Texts with another revision are not changed. */
const withRev = (old: string | undefined, rev: string) => (text: string) => text.replace(/("_rev"\s*:\s*)"([^"]*)"/, (whole, name: string, found: string) => (found === old ? `${name}${JSON.stringify(rev)}` : whole));

/** Returns the text based on the stored revision. It keeps the stored attachments unless it contains new attachment data. */
function rebaseOnto(theirs: Loaded, text: string): string {
  const mine = member(parse(text), '_attachments');
  const own = member(parse(theirs.text), '_attachments');
  const files = mine && /"data"\s*:/.test(raw(text, mine)) ? {} : { _attachments: own && raw(theirs.text, own) };
  return withMembers(text, { _rev: JSON.stringify(theirs.rev), ...files });
}

function Edit({ db, doc, isShared, readOnly, onSaved, again }: { db: string; doc: Loaded; isShared: boolean; readOnly: boolean; onSaved: (doc: Loaded) => void; again: () => void }) {
  const edited = useDraft([readOnly ? 'older' : 'doc', db, doc.id], doc.text, doc.rev);
  const { text, isChanged } = edited;
  const [theirs, setTheirs] = useState<Loaded>();
  const [stringOpen, setStringOpen] = useState(false);
  const { busy, error, run } = useAction();
  const undo = async (saved: Loaded, earlier: Loaded) => {
    try {
      const { rev } = JSON.parse((await send('PUT', docPath(db, doc.id), { body: rebaseOnto(saved, earlier.text) })).text) as { rev: string };
      showToast(`The earlier text is saved as ${rev}.`);
    } catch (problem) {
      showToast(`The edit was not undone: ${(problem as Error).message}`);
    }
    again();
  };
  const put = async (sent: string, body: string, earlier = doc) => {
    const answer = await send('PUT', docPath(db, doc.id), { body });
    const { rev } = JSON.parse(answer.text) as { rev: string };
    // The text may have changed during the request.
    const isLater = draft(['doc', db, doc.id])?.text !== sent;
    onSaved({ ...doc, rev, text: format(withMembers(body, { _rev: JSON.stringify(rev) })) });
    edited.saved(sent, { base: rev, rebase: withRev(stringOf(body, member(parse(body), '_rev')), rev) });
    const files = member(parse(body), '_attachments')?.keys ?? [];
    // An undo cannot restore the content of attachments that the edit has removed.
    const isUndoable = !earlier.deleted && earlier.attachments.every(({ name }) => files.includes(name));
    const saved = { ...doc, rev, text: body };
    showToast(isLater ? `Saved as ${rev}, without your later changes.` : `Saved as ${rev}.`, isUndoable ? { text: 'Undo', act: () => void undo(saved, earlier) } : undefined);
    setTheirs(undefined);
    again();
  };
  const save = () => {
    if (readOnly || busy) return;
    void run(async () => {
      try {
        // `now` returns the newest text; `text` may not be rendered yet.
        const sent = edited.now();
        await put(sent, sent);
      } catch (problem) {
        if (!(problem instanceof ApiError) || problem.status !== 409) throw problem;
        setTheirs(await load(db, doc.id, ''));
      }
    });
  };
  if (theirs) {
    return (
      <div class="stack">
        <Notice kind="warn">This document was saved by another client while you edited it. The stored text is on the left and yours on the right.</Notice>
        <Difference left={theirs.text} right={text} leftName={`Stored, ${theirs.rev}`} rightName="Yours" />
        <Problem error={error} />
        <div class="actions">
          <Button kind="primary" busy={busy} onClick={() => void run(() => put(text, rebaseOnto(theirs, text), theirs))}>Save mine over theirs</Button>
          <Button onClick={() => { edited.discard(); setTheirs(undefined); again(); }}>Take theirs</Button>
          <Button onClick={() => void run(async () => { await Promise.resolve(edited.replace(format(rebaseOnto(theirs, text)), theirs.rev)); setTheirs(undefined); again(); })}>Continue editing</Button>
        </div>
      </div>
    );
  }
  return (
    <div class="doc-area fills">
      <div class="row spread">
        <div class="actions">
          {!readOnly && <Button kind="primary" icon="check" busy={busy} disabled={!isChanged} onClick={save}>Save</Button>}
          {!readOnly && <Button onClick={() => void run(async () => { edited.setText(await Promise.resolve(format(edited.now()))); })}>Format</Button>}
          {!readOnly && <Button onClick={() => void run(async () => { await Promise.resolve(parse(edited.now())); setStringOpen(true); })}>Edit a string</Button>}
          {isChanged && !readOnly && <Button kind="quiet" onClick={edited.discard}>Undo all</Button>}
          <SideChoice />
          {readOnly && <LinkButton to={['db', db, 'doc', doc.id]} icon="history">To the newest revision</LinkButton>}
        </div>
        <span class="note">{bytes(text.length)}{isChanged ? ' · not saved' : ''} <span class="hide-small">· <kbd>Ctrl S</kbd> saves</span></span>
      </div>
      {edited.isStale && !busy
        ? <Notice kind="warn"><p>The document has changed since you edited it. Its revision is now {doc.rev}.</p><p class="row"><Button onClick={() => setTheirs(doc)}>Compare</Button><Button onClick={edited.discard}>Discard mine</Button></p></Notice>
        : <Restored found={edited.restored} onDiscard={edited.discard} />}
      <Problem error={error} />
      <Sides label={`JSON of ${doc.id}`} edited={edited} isShared={isShared} readOnly={readOnly} onSave={save} />
      {stringOpen && <StringEditor text={edited.now()} onText={edited.setText} onClose={() => setStringOpen(false)} />}
    </div>
  );
}

function SideChoice() {
  const [side, setSide] = useParam('as', 'json');
  return <Segments label="Edit as" value={side} onValue={(next) => setSide(next, true)} options={[['json', 'JSON'], ['form', 'Form'], ['both', 'Both']]} />;
}

/** The readers, the JSON editor and the form of a document, which edit the same draft. `isShared` is true if documents have readers. */
function Sides({ label, edited, isShared, readOnly = false, isNew = false, onSave }: { label: string; edited: DraftState; isShared: boolean; readOnly?: boolean; isNew?: boolean; onSave: () => void }) {
  const [side] = useParam('as', 'json');
  const onKeyDown = (event: KeyboardEvent) => {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== 's') return;
    event.preventDefault();
    onSave();
  };
  return (
    <>
      {isShared && <Readers text={edited.text} now={edited.now} onText={edited.setText} readOnly={readOnly} />}
      <div class={`doc-split as-${side}`}>
        {side !== 'form' && <Editor label={label} language="json" value={edited.text} onValue={edited.setText} readOnly={readOnly} problems={documentProblems} onSave={onSave} lines="fill" />}
        {side !== 'json' && <div class="form-side" onKeyDown={onKeyDown}><DocumentForm text={edited.text} now={edited.now} onText={edited.setText} readOnly={readOnly} isNew={isNew} /></div>}
      </div>
    </>
  );
}

function Revisions({ db, doc, again }: { db: string; doc: Loaded; again: () => void }) {
  const { busy, error, run } = useAction();
  const revert = (old: Loaded) => void run(async () => {
    const answer = await send('PUT', docPath(db, doc.id), { body: rebaseOnto(doc, old.text) });
    showToast(`The text of ${old.rev} is saved as ${(JSON.parse(answer.text) as { rev: string }).rev}.`);
    again();
  });
  const [shown, setShown] = useParam('show');
  const available = doc.revs.filter(({ status }) => status === 'available');
  const chosen = shown || available[1]?.rev || '';
  const other = useRequest((signal) => (chosen === '' ? Promise.resolve(undefined) : load(db, doc.id, chosen, signal)), [db, doc.id, chosen]);
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
        {available.length < 2 && <Notice>Only the current revision is stored, because compaction removes older ones. Revisions are not a version history.</Notice>}
        <Problem error={other.error} />
        {other.data && other.data.rev !== doc.rev && <Difference left={other.data.text} right={doc.text} leftName={other.data.rev} rightName={`Current, ${doc.rev}`} />}
        {other.data && <div class="actions"><LinkButton to={['db', db, 'doc', doc.id]} query={{ rev: other.data.rev }} icon="file">Open this revision</LinkButton>{other.data.rev !== doc.rev && <Button icon="history" busy={busy} onClick={() => { if (other.data) revert(other.data); }}>Restore this text</Button>}</div>}
        <Problem error={error} />
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
      await creating(`The document ${name}`, () => send('COPY', docPath(db, id), { headers: { Destination: idPath(name) } }));
      showToast(`Cloned as ${name}.`);
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

function undo(db: string, deletion: Deletion): void {
  const { id } = deletion;
  restore(db, [deletion]).then((failed) => {
    if (failed.length > 0) showToast(`${id} was not restored: its revision was compacted, or another client has changed the document.`);
    else {
      showToast(`${id} is restored.`);
      go(['db', db, 'doc', id]);
    }
  }, (error: Error) => showToast(`${id} was not restored: ${error.message}`));
}

function Deleted({ db, id, again }: { db: string; id: string; again: () => void }) {
  const { busy, error, run } = useAction();
  const act = () => void run(async () => {
    if ((await restore(db, [await deletionOf(db, id)])).length > 0) throw new Error('The revision before the deletion was compacted.');
    showToast(`${id} is restored.`);
    again();
  });
  return (
    <Card><Empty icon="trash" title="This document is deleted" action={<Button kind="primary" icon="history" busy={busy} onClick={act}>Restore it</Button>}>The revision before the deletion can be restored until a compaction removes it.</Empty><Problem error={error} /></Card>
  );
}

function Remove({ db, doc, onClose }: { db: string; doc: Loaded; onClose: () => void }) {
  const act = async () => {
    await send('DELETE', docPath(db, doc.id) + query({ rev: doc.rev }));
    storeDraft(['doc', db, doc.id], undefined);
    showToast(`${doc.id} is deleted.`, { text: 'Undo', act: () => undo(db, { id: doc.id, old: doc.rev }) });
    go(['db', db]);
  };
  return (
    <Confirm title="Delete this document?" verb="Delete" act={act} onClose={onClose}>
      <p class="break"><strong>{doc.id}</strong></p>
      {doc.conflicts.length > 0 && <p>The document has conflicting revisions. One of them becomes the current revision.</p>}
    </Confirm>
  );
}

/** Adds the revision to a text that was edited while the document was created. */
const withNewRev = (text: string, rev: string) => text.replace('{', `{\n  "_rev": ${JSON.stringify(rev)},`);

export function NewDocument({ db, info }: DbPage) {
  const [kind] = useParam('kind');
  const [partition] = useParam('partition', 'partition');
  const [start, setStart] = useState('');
  const key = ['new', db, kind];
  const edited = useDraft(key, start, '');
  const { busy, error, run } = useAction();
  useEffect(() => {
    const startWith = (id: string) => {
      const full = info?.props?.partitioned ? `${partition}:${id}` : id;
      setStart(`{\n  "_id": ${JSON.stringify(kind === 'local' ? `_local/${id}` : full)}\n}`);
    };
    get<{ uuids: string[] }>('_uuids').then(({ uuids }) => startWith(uuids[0] ?? '')).catch(() => startWith(''));
  }, [db, kind]);
  const create = (id: string, text: string) => (member(parse(text), '_rev') ? send('PUT', docPath(db, id), { body: text }) : creating(`The document ${id}`, () => send('PUT', docPath(db, id), { body: text })));
  const save = () => void run(async () => {
    const text = edited.now();
    const node = parse(text);
    const id = stringOf(text, member(node, '_id'));
    const answer = id === undefined || id === '' ? await send('POST', pathOf`${db}`, { body: withMembers(text, { _id: undefined }) }) : await create(id, text);
    const created = JSON.parse(answer.text) as { id: string; rev: string };
    const typed = draft(key)?.text ?? text;
    if (typed !== text) storeDraft(['doc', db, created.id], { text: withNewRev(typed, created.rev), base: created.rev });
    edited.discard();
    showToast(`${created.id} is created.`);
    go(['db', db, 'doc', created.id]);
  });
  return (
    <>
      <PageHead title="New document" note={<>In <Link to={['db', db]}>{db}</Link>. The server generates the id of a document without _id.</>} />
      <div class="doc-area fills">
        <div class="actions"><Button kind="primary" icon="check" busy={busy} onClick={save}>Create</Button><Button onClick={() => { try { edited.setText(format(edited.now())); } catch { /* The editor marks the error. */ } }}>Format</Button><SideChoice /></div>
        <Restored found={edited.restored} onDiscard={edited.discard} />
        <Problem error={error} />
        <Sides label="JSON of the new document" edited={edited} isShared={kind !== 'local' && hasReaders(info)} isNew onSave={save} />
      </div>
    </>
  );
}
