/** The changes of a database, the newest first, followed by long polls. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { changesSource } from '../api/export.ts';
import { filters } from '../api/choices.ts';
import { send } from '../api/http.ts';
import { path, query } from '../api/paths.ts';
import { member, parse, plain, raw, stringOf } from '../json/text.ts';
import { useParam } from '../router.ts';
import { ChoiceField } from '../ui/choice.tsx';
import { Button, Card, Check, Empty, Link, Problem, Skeleton, Tag } from '../ui/kit.tsx';
import { Export } from '../ui/export.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { useRequest, useSettled } from '../ui/use.ts';
import type { DbPage } from './db.tsx';

interface Change {
  seq: string;
  id: string;
  revs: string[];
  deleted: boolean;
  /** True if the change arrived after the page was opened. */
  fresh: boolean;
}

const SHOWN_MAX = 500;
const PAGE = 100;

function read(text: string, fresh: boolean): { changes: Change[]; last: string } {
  const root = parse(text);
  const changes = (member(root, 'results')?.children ?? []).map((node) => {
    const seq = member(node, 'seq');
    return {
      seq: seq ? plain(text, seq) : '', id: stringOf(text, member(node, 'id')) ?? '', fresh,
      revs: (member(node, 'changes')?.children ?? []).map((change) => stringOf(text, member(change, 'rev')) ?? ''),
      deleted: raw(text, member(node, 'deleted') ?? { kind: 'literal', start: 0, end: 0 }) === 'true',
    };
  });
  const last = member(root, 'last_seq');
  return { changes, last: last ? plain(text, last) : '' };
}

export function Changes({ db }: DbPage) {
  const [filter, setFilter] = useParam('filter');
  const [live, setLive] = useParam('live', '1');
  const [list, setList] = useState<Change[]>();
  const [error, setError] = useState<Error>();
  const [reloads, bump] = useState(0);
  const settled = useSettled(filter, 300);
  const named = useRequest((signal) => filters(db, signal), [db]);
  const last = useRef('');
  const params = { filter: settled || undefined, style: 'all_docs' };
  useEffect(() => {
    const control = new AbortController();
    const { signal } = control;
    const follow = async () => {
      const first = await send('GET', path`${db}/_changes` + query({ ...params, descending: true, limit: PAGE }), { signal });
      const initial = read(first.text, false);
      setList(initial.changes);
      // The first change in descending order is the newest one; the feed continues after it.
      last.current = initial.changes[0]?.seq ?? 'now';
      while (live === '1' && !signal.aborted) {
        const { text } = await send('GET', path`${db}/_changes` + query({ ...params, feed: 'longpoll', since: last.current, limit: PAGE, timeout: 50_000 }), { signal });
        const next = read(text, true);
        last.current = next.last || last.current;
        if (next.changes.length > 0) setList((old) => merge(next.changes, old ?? []));
      }
    };
    setError(undefined);
    follow().catch((problem: unknown) => { if (!signal.aborted) setError(problem as Error); });
    return () => control.abort();
  }, [db, settled, live, reloads]);
  return (
    <>
      <div class="toolbar">
        <div class="grow"><ChoiceField label="Filter" value={filter} onValue={(value) => setFilter(value, true)} choices={named.data ?? []} mono placeholder="all changes, or a filter function: ddoc/filter" /></div>
        <Check label="Live" checked={live === '1'} onChecked={(on) => setLive(on ? '1' : '0')} />
        <Button icon="refresh" onClick={() => bump(reloads + 1)}>Refresh</Button>
        <Export name={`${db}-changes`} source={() => changesSource(path`${db}/_changes`, params)} />
        <CopyAs request={{ method: 'GET', path: path`${db}/_changes` + query({ ...params, descending: true, limit: PAGE }) }} />
      </div>
      <Problem error={error} again={() => bump(reloads + 1)} />
      <Card flush>
        {!list && !error && <Skeleton />}
        {list?.length === 0 && <Empty icon="history" title="No changes yet">{live === '1' ? 'New changes appear here.' : ''}</Empty>}
        {list && list.length > 0 && (
          <div class="table-wrap"><table aria-live={live === '1' ? 'polite' : undefined}>
            <caption class="unseen">Changes, newest first</caption>
            <thead><tr><th scope="col">Sequence</th><th scope="col">Document</th><th scope="col" class="hide-small">Revisions</th><th scope="col"><span class="unseen">State</span></th></tr></thead>
            <tbody>{list.map((change) => (
              <tr key={change.seq}>
                <td class="mono tight" title={change.seq}>{change.seq.split('-')[0]}</td>
                <td class="key"><Link to={['db', db, 'doc', change.id]} {...(change.deleted ? { query: { rev: change.revs[0] } } : {})}>{change.id}</Link></td>
                <td class="mono hide-small revisions">{change.revs.map((rev) => <div key={rev}>{rev}</div>)}</td>
                <td class="tight"><span class="row">{change.deleted && <Tag kind="bad">deleted</Tag>}{change.revs.length > 1 && <Tag kind="warn">{change.revs.length} leaves</Tag>}{change.fresh && <Tag kind="accent">new</Tag>}</span></td>
              </tr>
            ))}</tbody>
          </table></div>
        )}
      </Card>
    </>
  );
}

/** Merges new changes. A feed contains each document once, at its newest change. */
function merge(fresh: Change[], old: Change[]): Change[] {
  const ids = new Set(fresh.map(({ id }) => id));
  return [...fresh.toReversed(), ...old.filter(({ id }) => !ids.has(id))].slice(0, SHOWN_MAX);
}
