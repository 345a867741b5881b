/** The frame of the pages of one database: head and tabs. */
import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { get } from '../api/http.ts';
import { path as pathOf } from '../api/paths.ts';
import { sessionState } from '../api/session.ts';
import { useDialog, useRoute } from '../router.ts';
import { Button, LinkButton, Link, PageHead, Problem, Skeleton, Tabs, Tag } from '../ui/kit.tsx';
import { useRequest } from '../ui/use.ts';
import { bytes, plural } from '../ui/words.ts';
import { ViewAs, canViewAs } from './readers.tsx';

export interface DbInfo {
  db_name: string;
  doc_count: number;
  doc_del_count: number;
  update_seq: string | number;
  purge_seq: string | number;
  compact_running: boolean;
  sizes: { file: number; external: number; active: number };
  props?: { partitioned?: boolean };
  /** True if documents have access lists. */
  access?: boolean;
}

export interface DbPage {
  db: string;
  info: DbInfo | undefined;
  /** Loads the information about the database again. */
  again: () => void;
}

type Page = ComponentType<DbPage>;

export const PAGES: Record<string, () => Promise<Page>> = {
  docs: () => import('./documents.tsx').then((module) => module.Documents),
  doc: () => import('./document.tsx').then((module) => module.Document),
  new: () => import('./document.tsx').then((module) => module.NewDocument),
  upload: () => import('./upload.tsx').then((module) => module.Upload),
  designs: () => import('./designs.tsx').then((module) => module.Designs),
  design: () => import('./design.tsx').then((module) => module.Design),
  view: () => import('./view.tsx').then((module) => module.View),
  query: () => import('./query.tsx').then((module) => module.Query),
  search: () => import('./search.tsx').then((module) => module.Search),
  schema: () => import('./schema.tsx').then((module) => module.Schema),
  changes: () => import('./changes.tsx').then((module) => module.Changes),
  playground: () => import('./playground.tsx').then((module) => module.Playground),
  settings: () => import('./settings.tsx').then((module) => module.Settings),
};

const loaded = new Map<string, Page>();

export function Database() {
  const { path } = useRoute();
  const db = path[1] ?? '';
  const sub = path[2] ?? 'docs';
  const result = useRequest((signal) => get<DbInfo>(pathOf`${db}`, signal), [db]);
  const [page, setPage] = useState<Page | undefined>(() => loaded.get(sub));
  const [error, setError] = useState<Error>();
  useEffect(() => {
    setPage(() => loaded.get(sub));
    PAGES[sub]?.().then((found) => {
      loaded.set(sub, found);
      setPage(() => found);
    }).catch(setError);
  }, [sub]);
  if (result.error) {
    return <div class="stack"><PageHead title={db} /><Problem error={result.error} again={result.again} /><p><Link to={['databases']}>To the databases</Link></p></div>;
  }
  const Shown = page ?? loaded.get(sub);
  const isOneDocument = sub === 'doc' || sub === 'new';
  return (
    <>
      {!isOneDocument && <Head db={db} sub={sub} info={result.data} />}
      {!isOneDocument && <DbTabs db={db} sub={sub} />}
      <Problem error={error} again={() => location.reload()} />
      {!PAGES[sub] && <p>This page does not exist. <Link to={['db', db]}>To the documents</Link></p>}
      {PAGES[sub] && (Shown ? <Shown key={path.slice(0, 5).join('/')} db={db} info={result.data} again={result.again} /> : <Skeleton />)}
    </>
  );
}

function Head({ db, sub, info }: { db: string; sub: string; info: DbInfo | undefined }) {
  const { query } = useRoute();
  const [dialog, setDialog] = useDialog();
  const note = info && (
    <span class="row">
      {plural(info.doc_count, 'document')} · {bytes(info.sizes.file)} on disk{info.props?.partitioned && <Tag>partitioned</Tag>}{info.access && <Tag>access per document</Tag>}{info.compact_running && <Tag kind="accent">compacting</Tag>}
    </span>
  );
  return (
    <PageHead title={db} note={note ?? '…'}>
      {sub === 'docs' && info?.access && canViewAs() && <Button icon="user" onClick={() => setDialog('view-as')}>View as</Button>}
      {sub === 'docs' && <LinkButton to={['db', db, 'upload']} icon="upload">Upload</LinkButton>}
      {sub === 'docs' && <LinkButton to={['db', db, 'new']} query={{ partition: query.get('partition') ?? undefined }} kind="primary" icon="plus">New document</LinkButton>}
      {dialog === 'view-as' && canViewAs() && <ViewAs db={db} onClose={() => setDialog('')} />}
    </PageHead>
  );
}

function DbTabs({ db, sub }: { db: string; sub: string }) {
  const hasSearch = sessionState.value.welcome?.features.some((feature) => feature === 'search' || feature === 'nouveau') ?? false;
  const tabs: [string, string[], string[]][] = [
    ['Documents', [], ['docs', 'upload']],
    ['Views', ['designs'], ['designs', 'design', 'view']],
    ['Query', ['query'], ['query']],
    ...(hasSearch ? [['Search', ['search'], ['search']] as [string, string[], string[]]] : []),
    ['Schema', ['schema'], ['schema']],
    ['Playground', ['playground'], ['playground']],
    ['Changes', ['changes'], ['changes']],
    ['Settings', ['settings'], ['settings']],
  ];
  return <Tabs label="Parts of the database" items={tabs.map(([text, to, subs]) => ({ text, to: ['db', db, ...to], current: subs.includes(sub) }))} />;
}
