/** The fields of the documents of a database, determined from a sample. */
import { objectSource } from '../api/export.ts';
import { send } from '../api/http.ts';
import { path, query } from '../api/paths.ts';
import { readRows } from '../json/rows.ts';
import { schemaOf, type FieldSummary, type Schema as Summary } from '../json/schema.ts';
import { setParams, useParam } from '../router.ts';
import { Card, Empty, Field, Link, Meter, Notice, Problem, Select, Skeleton, Tag } from '../ui/kit.tsx';
import { Export } from '../ui/export.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { useRequest } from '../ui/use.ts';
import { number, plural } from '../ui/words.ts';
import type { DbInfo, DbPage } from './db.tsx';

/** Number of positions in the order of ids at which documents are sampled, because ids often depend on the kind of document. */
const POSITIONS = 5;

async function sample(db: string, info: DbInfo, size: number, signal: AbortSignal): Promise<Summary> {
  const each = Math.ceil(size / POSITIONS);
  const skips = info.doc_count <= size ? [0] : Array.from({ length: POSITIONS }, (_, position) => Math.floor((position * (info.doc_count - each)) / (POSITIONS - 1)));
  const limit = skips.length === 1 ? size : each;
  const answers = await Promise.all(skips.map((skip) => send('GET', path`${db}/_all_docs` + query({ include_docs: true, limit, skip }), { signal })));
  const docs = new Map(answers.flatMap(({ text }) => readRows(text).rows).flatMap(({ id, doc }): [string, string][] => (id === undefined || doc === undefined || id.startsWith('_design/') ? [] : [[id, doc]])));
  return schemaOf([...docs.values()]);
}

export function Schema({ db, info }: DbPage) {
  const [size, setSize] = useParam('sample', '500');
  const [typed] = useParam('q');
  const result = useRequest((signal) => (info === undefined ? Promise.resolve(undefined) : sample(db, info, Number(size), signal)), [db, info === undefined, size]);
  const shown = result.data?.fields.filter(({ path: name }) => name.toLowerCase().includes(typed.toLowerCase())) ?? [];
  return (
    <>
      <div class="toolbar">
        <div class="grow"><Field label="Fields that contain" value={typed} onValue={(q) => setParams({ q }, true)} type="search" placeholder="a part of the name" /></div>
        <Select label="Sample" value={size} onValue={setSize} options={[['100', '100 documents'], ['500', '500 documents'], ['2000', '2,000 documents']]} />
        {shown.length > 0 && <Export name={`${db}-schema`} source={() => objectSource(shown.map(({ path: field, types, documents, examples }) => ({ field, types: Object.fromEntries(types), documents, examples })))} />}
        <CopyAs request={{ method: 'GET', path: path`${db}/_all_docs` + query({ include_docs: true, limit: size }) }} />
      </div>
      <Problem error={result.error} again={result.again} />
      {!result.data && !result.error && <Skeleton lines={10} />}
      {result.data?.isPartial && <Notice kind="warn">The documents have more fields than are listed. Their member names may be data.</Notice>}
      {result.data?.documents === 0 && <Card><Empty icon="table" title="No documents to read">The schema is read from the documents of the database.</Empty></Card>}
      {result.data && result.data.documents > 0 && <Fields db={db} fields={shown} documents={result.data.documents} />}
    </>
  );
}

function Fields({ db, fields, documents }: { db: string; fields: FieldSummary[]; documents: number }) {
  return (
    <Card flush title={plural(fields.length, 'field')} note={`From ${plural(documents, 'document')} sampled at several positions`}>
      <div class="table-wrap" tabIndex={0} role="region" aria-label="Fields"><table>
        <caption class="unseen">Fields</caption>
        <thead><tr><th scope="col">Field</th><th scope="col">Types</th><th scope="col">Documents</th><th scope="col" class="hide-small">Examples</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
        <tbody>{fields.map((field) => <Line key={field.path} db={db} field={field} documents={documents} />)}</tbody>
      </table></div>
    </Card>
  );
}

function Line({ db, field, documents }: { db: string; field: FieldSummary; documents: number }) {
  const values = [...field.types.values()].reduce((sum, count) => sum + count, 0);
  const percent = (100 * field.documents) / documents;
  // Fields within arrays need $elemMatch, so no query is offered for them.
  const selector = field.path.includes('[]') ? undefined : JSON.stringify({ selector: { [field.path]: { $exists: true } }, limit: 25 }, null, 2);
  return (
    <tr>
      <td class="mono break key">{field.path}</td>
      <td><span class="chips">{[...field.types].map(([type, count]) => <Tag key={type} kind={field.types.size > 1 ? 'warn' : 'plain'}>{type}{field.types.size > 1 ? ` ${Math.round((100 * count) / values)} %` : ''}</Tag>)}</span></td>
      <td><span class="two-lines"><Meter label={`Documents with ${field.path}`} value={percent} /><small>{number(field.documents)} ({percent >= 99.95 || percent < 0.05 ? Math.round(percent) : percent.toFixed(1)} %)</small></span></td>
      <td class="hide-small quiet-text break"><div class="examples" title={field.examples.join('\n')}>{field.examples.join(' · ')}</div></td>
      <td class="tight right">{selector !== undefined && <Link to={['db', db, 'query']} query={{ q: selector }}>Query</Link>}</td>
    </tr>
  );
}
