/** The databases of several servers in one table, with a column for each server. */
import { useMemo, useState } from 'preact/hooks';
import type { Info } from '../api/databases.ts';
import { compare, type ServerState } from '../api/overview.ts';
import { href, setParams, useParam } from '../router.ts';
import { Card, Empty, Field, Segments, Tag } from '../ui/kit.tsx';
import { Sentinel } from '../ui/sentinel.tsx';
import { bytes, number, plural } from '../ui/words.ts';

/** Number of rows that are added when the end of the table becomes visible. */
const PAGE = 100;

export interface Column {
  /** Name of the server in addresses. */
  on: string;
  title: string;
  state: ServerState;
}

export function SideBySide({ columns }: { columns: Column[] }) {
  const [typed] = useParam('q');
  const [kind] = useParam('show', 'all');
  const [count, setCount] = useState(PAGE);
  const all = useMemo(() => compare(columns.map(({ state }) => state)), columns.flatMap(({ state }) => [state.names, state.figures]));
  const matching = all.filter(({ db, differs }) => db.startsWith(typed) && (kind === 'all' || differs));
  const differing = all.filter(({ differs }) => differs).length;
  return (
    <Card flush title="Databases side by side" note={`${plural(all.length, 'database')}, of which ${number(differing)} ${differing === 1 ? 'differs' : 'differ'}: a server lacks the database or has another number of documents`}
      actions={<Segments label="Databases" value={kind} options={[['all', 'All'], ['differing', 'Different']]} onValue={(show) => setParams({ show: show === 'all' ? undefined : show }, true)} />}>
      <div class="inner"><Field label="Databases whose names begin with" hideLabel type="search" value={typed} onValue={(q) => setParams({ q }, true)} placeholder="Names that begin with …" /></div>
      {matching.length === 0 ? <Empty icon="database" title={typed === '' ? 'No database differs' : `No such name begins with “${typed}”`} /> : (
        <div class="table-wrap"><table>
          <caption class="unseen">Databases of all servers</caption>
          <thead><tr><th scope="col">Database</th>{columns.map(({ on, title }) => <th key={on} scope="col" class="num">{title}</th>)}</tr></thead>
          <tbody>{matching.slice(0, count).map(({ db, infos, differs }) => (
            <tr key={db}>
              <th scope="row"><span class="row">{db}{differs && <Tag kind="warn">differs</Tag>}</span></th>
              {columns.map(({ on }, at) => <td key={on} class="num"><Figures db={db} on={on} info={infos[at]} /></td>)}
            </tr>
          ))}</tbody>
        </table></div>
      )}
      {matching.length > count && <Sentinel key={count} onSeen={() => setCount((old) => old + PAGE)} />}
    </Card>
  );
}

function Figures({ db, on, info }: { db: string; on: string; info: Info | null | undefined }) {
  if (info === null) return <span class="quiet-text">missing</span>;
  return <><a href={href(['db', db], {}, on)}>{info === undefined ? 'open' : plural(info.doc_count, 'document')}</a>{info && <span class="quiet-text hide-small"> · {bytes(info.sizes.file)}</span>}</>;
}
