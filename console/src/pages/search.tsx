/** Full-text search, on servers that support it. */
import { useState } from 'preact/hooks';
import { searchSource } from '../api/export.ts';
import { send } from '../api/http.ts';
import { path as pathOf, query, segment } from '../api/paths.ts';
import { sessionState } from '../api/session.ts';
import { readRows } from '../json/rows.ts';
import { member, parse, raw, stringOf } from '../json/text.ts';
import { useParam } from '../router.ts';
import { Restored, useLinkedDraft } from '../ui/draft.tsx';
import { Button, Card, Empty, Field, Link, LinkButton, Problem, Select, Skeleton } from '../ui/kit.tsx';
import { Export } from '../ui/export.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { millis, plural } from '../ui/words.ts';
import type { DbPage } from './db.tsx';
import { PartitionField, usePartition } from './partition.tsx';

interface Choice {
  ddoc: string;
  index: string;
  kind: '_search' | '_nouveau';
}

async function choices(db: string, signal: AbortSignal): Promise<Choice[]> {
  const { text } = await send('GET', pathOf`${db}/_design_docs?include_docs=true`, { signal });
  return readRows(text).rows.flatMap(({ doc, id }) => {
    if (doc === undefined || id === undefined) return [];
    const root = parse(doc);
    const of = (name: string, kind: Choice['kind']) => (member(root, name)?.keys ?? []).map((index) => ({ ddoc: id.slice(8), index, kind }));
    return [...of('indexes', '_search'), ...of('nouveau', '_nouveau')];
  });
}

/** Returns a unique name. It includes the kind, because both kinds may have an index of the same name. */
const nameOf = ({ ddoc, index, kind }: Choice) => `${ddoc}/${kind}/${index}`;

export function Search({ db, info }: DbPage) {
  const [chosen, setChosen] = useParam('index');
  const [q, setQ] = useParam('q');
  const edited = useLinkedDraft(['search', db], q, '');
  const known = useRequest((signal) => choices(db, signal), [db]);
  const choice = known.data?.find((each) => nameOf(each) === chosen) ?? known.data?.[0];
  const partition = usePartition(db, info);
  const path = choice && `${partition.path}/${pathOf`_design/${choice.ddoc}/${choice.kind}/${choice.index}`}${query({ q, limit: 50 })}`;
  const found = useRequest(async (signal) => (path === undefined || q === '' ? undefined : await send('GET', path, { signal })), [path, q]);
  if (known.error) return <Problem error={known.error} again={known.again} />;
  if (!known.data) return <Skeleton />;
  if (!choice) return <Card><Empty icon="search" title="No search indexes" action={<LinkButton to={['db', db, 'designs']} query={{ do: 'create', kind: 'nouveau' }} kind="primary" icon="plus">New search index</LinkButton>}>A design document defines search indexes in <code>nouveau</code> or <code>indexes</code>. Features of this server: {sessionState.value.welcome?.features.join(', ')}.</Empty></Card>;
  return (
    <>
      <form class="toolbar" onSubmit={(event) => { event.preventDefault(); setQ(edited.text); edited.linked(edited.text); }}>
        <Select label="Index" value={nameOf(choice)} onValue={setChosen} options={known.data.map(nameOf)} />
        <PartitionField db={db} info={info} />
        <div class="grow whole"><Field label="Lucene query" value={edited.text} onValue={edited.setText} mono placeholder="name:anna* AND city:berlin" /></div>
        <Button kind="primary" type="submit" icon="search">Search</Button>
        <LinkButton to={['db', db, 'design', choice.ddoc]} query={{ part: `${choice.kind === '_nouveau' ? 'nouveau' : 'indexes'}/${choice.index}` }} icon="code">Edit index</LinkButton>
        {found.data && path && <Export name={`${db}-search`} source={() => searchSource(`${partition.path}/${pathOf`_design/${choice.ddoc}/${choice.kind}/${choice.index}`}${query({ q })}`)} />}
        <CopyAs request={{ method: 'GET', path: path ?? '' }} />
      </form>
      <Restored found={edited.restored} onDiscard={edited.discard} />
      <Problem error={found.error} />
      {found.data && path && <Hits key={path} db={db} path={path} first={found.data.text} ms={found.data.ms} />}
    </>
  );
}

function Hits({ db, path, first, ms }: { db: string; path: string; first: string; ms: number }) {
  const [texts, setTexts] = useState([first]);
  const action = useAction();
  const answers = texts.map((text) => ({ text, root: parse(text) }));
  const rows = answers.flatMap(({ text, root }) => ((member(root, 'rows') ?? member(root, 'hits'))?.children ?? []).map((hit) => ({ text, hit })));
  const last = answers[answers.length - 1];
  const total = last && (member(last.root, 'total_rows') ?? member(last.root, 'total_hits'));
  const count = last && total ? Number(raw(last.text, total)) : rows.length;
  const more = () => action.run(async () => {
    const bookmark = last && stringOf(last.text, member(last.root, 'bookmark'));
    const { text } = await send('GET', `${path}&bookmark=${segment(bookmark ?? '')}`);
    setTexts([...texts, text]);
  });
  return (
    <>
      <Card flush title={plural(count, 'document')} note={`answered in ${millis(ms)}`}><div class="table-wrap"><table>
        <caption class="unseen">Documents found</caption>
        <tbody>{rows.map(({ text, hit }, index) => { const id = stringOf(text, member(hit, 'id')) ?? ''; const fields = member(hit, 'fields'); return <tr key={index}><td><Link to={['db', db, 'doc', id]}>{id}</Link></td><td class="mono">{fields && raw(text, fields).slice(0, 300)}</td></tr>; })}</tbody>
      </table></div></Card>
      <Problem error={action.error} />
      {rows.length < count && <Button busy={action.busy} onClick={() => void more()}>More</Button>}
    </>
  );
}
