/** The design documents of a database with their functions, index sizes and builds. */
import { useState } from 'preact/hooks';
import { readConfig } from '../api/config.ts';
import { type DesignDoc, build, designs, hasViews, indexInfo, isMango, controlBuild } from '../api/design.ts';
import { creating, post, put } from '../api/http.ts';
import { designPath, path } from '../api/paths.ts';
import { isAdmin } from '../api/session.ts';
import { go, useDialog, useParam } from '../router.ts';
import { ChoiceField } from '../ui/choice.tsx';
import { Button, Card, Dialog, Empty, Field, Link, Meter, Problem, Skeleton, Tag, showToast } from '../ui/kit.tsx';
import { CopyAs, Menu, type MenuItem } from '../ui/menu.tsx';
import { useCommands } from '../ui/palette.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { bytes, duration, plural } from '../ui/words.ts';
import type { DbPage } from './db.tsx';

export function Designs({ db }: DbPage) {
  const [dialog, setDialog] = useDialog();
  const result = useRequest((signal) => designs(db, signal), [db]);
  const { error, run } = useAction();
  useCommands([{ text: 'New design document', where: 'Action', icon: 'plus', act: () => setDialog('create') }], [db]);
  const cleanup = () => void run(async () => {
    await post(path`${db}/_view_cleanup`, {});
    showToast('Unused index files are removed.');
  });
  return (
    <>
      <div class="row spread">
        <p class="note">A design document holds views, search indexes and other functions. The server updates the indexes of views and searches.</p>
        <div class="actions">
          <CopyAs request={{ method: 'GET', path: path`${db}/_design_docs?include_docs=true` }} />
          {isAdmin() && <Button onClick={cleanup}>Clean up indexes</Button>}
          <Button kind="primary" icon="plus" onClick={() => setDialog('create')}>New design document</Button>
        </div>
      </div>
      <Problem error={error ?? result.error} again={result.again} />
      {!result.data && !result.error && <Skeleton />}
      {result.data?.length === 0 && <Card><Empty icon="code" title="No design documents yet" action={<Button kind="primary" icon="plus" onClick={() => setDialog('create')}>New design document</Button>}>Views sort and aggregate documents by their content. The playground runs functions before they are stored.</Empty></Card>}
      {result.data?.map((design) => <DesignCard key={design._id} db={db} design={design} />)}
      {dialog === 'create' && <Create db={db} onClose={() => setDialog('')} />}
    </>
  );
}

function DesignCard({ db, design }: { db: string; design: DesignDoc }) {
  const name = design._id.slice('_design/'.length);
  const views = Object.keys(design.views ?? {}).filter((view) => view !== 'lib');
  const others = (['nouveau', 'indexes', 'filters', 'updates', 'shows', 'lists'] as const).flatMap((kind) => Object.keys(design[kind] ?? {}).map((each) => `${kind}/${each}`));
  const info = useRequest((signal) => (hasViews(design) ? indexInfo(db, name, signal).catch(() => undefined) : Promise.resolve(undefined)), [db, design._rev], 5000);
  const size = info.data?.view_index.sizes;
  return (
    <Card flush title={<Link to={['db', db, 'design', name]}>{name}</Link>} note={<span class="row"><Tag>{design.language ?? 'javascript'}</Tag>{size && `${bytes(size.file)} on disk, ${bytes(size.external)} of rows`}{design.validate_doc_update && <Tag kind="accent">validates</Tag>}{design.options?.['swap'] === 'online' && <Tag kind="accent">swaps online</Tag>}</span>}
      actions={hasViews(design) && <BuildState db={db} ddoc={name} />}>
      {views.length + others.length === 0 && <p class="note inner">No views yet.</p>}
      {views.length + others.length > 0 && (
        <div class="table-wrap"><table class="functions">
          <caption class="unseen">Functions of {name}</caption>
          <tbody>
            {views.map((view) => (
              <tr key={view}>
                <td>{isMango(design) ? view : <Link to={['db', db, 'view', name, view]}>{view}</Link>}</td>
                <td class="quiet-text">{isMango(design) ? 'Mango index' : typeof design.views?.[view]?.reduce === 'string' ? `map, ${design.views[view].reduce.startsWith('_') ? design.views[view].reduce : 'reduce'}` : 'map'}</td>
                <td class="right">{!isMango(design) && <span class="row end-row"><Link to={['db', db, 'design', name]} query={{ part: `views/${view}` }}>Edit</Link><Link to={['db', db, 'playground']} query={{ ddoc: name, name: view }}>Try out</Link></span>}</td>
              </tr>
            ))}
            {others.map((other) => <tr key={other}><td><Link to={['db', db, 'design', name]} query={{ part: other }}>{other}</Link></td><td class="quiet-text">{/^(?:nouveau|indexes)\//.test(other) ? 'search index' : 'function'}</td><td /></tr>)}
          </tbody>
        </table></div>
      )}
    </Card>
  );
}

const STATUS = { current: 'good', lagging: 'warn', building: 'accent', paused: 'warn', resting: 'bad' } as const;

/** State of an index build and a menu that controls it. Shows nothing on servers that do not report builds. */
export function BuildState({ db, ddoc }: { db: string; ddoc: string }) {
  const result = useRequest((signal) => build(db, ddoc, signal), [db, ddoc], 1500);
  const { busy, run } = useAction();
  const state = result.data;
  if (!state) return null;
  const control = (action: 'start' | 'pause' | 'resume' | 'cancel') => void run(async () => {
    await controlBuild(db, ddoc, action);
    result.again();
  });
  const items: MenuItem[] = state.status === 'building'
    ? [{ text: 'Pause', icon: 'pause', act: () => control('pause') }, { text: 'Cancel', icon: 'stop', act: () => control('cancel') }]
    : state.status === 'paused' ? [{ text: 'Resume', icon: 'play', act: () => control('resume') }]
      : state.status === 'current' ? [{ text: 'Pause builds', icon: 'pause', act: () => control('pause') }]
        : [{ text: 'Build now', icon: 'play', act: () => control('start') }, { text: 'Pause builds', icon: 'pause', act: () => control('pause') }];
  return (
    <div class="row">
      {state.progress !== undefined && <><Meter label={`Build of ${ddoc}`} value={state.progress} /><span class="note">{state.progress} %{state.eta_s !== null && state.eta_s !== undefined ? `, ${duration(state.eta_s)} left` : ''}</span></>}
      {state.updates_pending > 0 && state.progress === undefined && <span class="note">{plural(state.updates_pending, 'change')} behind</span>}
      <Tag kind={STATUS[state.status]}>{state.status}</Tag>
      {!busy && <Menu label={`Build of ${ddoc}`} icon="down" items={items} />}
    </div>
  );
}

function Create({ db, onClose }: { db: string; onClose: () => void }) {
  const [kind] = useParam('kind');
  const [name, setName] = useState('');
  const [language, setLanguage] = useState('javascript');
  const languages = useRequest((signal) => (isAdmin() ? readConfig(signal).then((sections) => ['javascript', ...Object.keys(sections['query_servers'] ?? {})], () => ['javascript']) : Promise.resolve(['javascript'])), []);
  const { busy, error, run } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const design = name.replace(/^_design\//, '');
      await creating(`The design document ${design}`, () => put(designPath(db, design), { language, views: {} }));
      go(['db', db, 'design', design], { part: 'new', kind });
    });
  };
  return (
    <Dialog title="New design document" onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <Field label="Name" value={name} onValue={setName} required autofocus mono hint="Without the prefix _design/." />
        <ChoiceField label="Language" value={language} onValue={setLanguage} choices={languages.data ?? ['javascript']} required mono hint="The language of the functions." />
        <Problem error={error} />
        <div class="actions end"><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit" busy={busy}>Create</Button></div>
      </form>
    </Dialog>
  );
}
