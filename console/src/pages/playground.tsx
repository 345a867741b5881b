/** The playground: functions on the left and their results for a sample of documents on the right, updated after each key stroke. */
import { useEffect, useState } from 'preact/hooks';
import { designs, MAP, saveText } from '../api/design.ts';
import { ApiError, send } from '../api/http.ts';
import { designPath, path } from '../api/paths.ts';
import { getAt, setAt } from '../json/edit.ts';
import { readRows } from '../json/rows.ts';
import { format, member, parse, raw } from '../json/text.ts';
import { go, setParams, useDialog, useParam } from '../router.ts';
import { ChoiceField } from '../ui/choice.tsx';
import { Restored, useLinkedDraft } from '../ui/draft.tsx';
import { Editor } from '../ui/editor.tsx';
import { Button, Card, Dialog, Empty, Field, Json, Link, Notice, Problem, Select, Skeleton, Tag, showToast } from '../ui/kit.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { useAction, useRequest, useSettled } from '../ui/use.ts';
import { bytes, number, plural } from '../ui/words.ts';
import type { DbPage } from './db.tsx';
import { Reduce } from './design.tsx';

interface Trial {
  engine: string;
  language: string;
  /** Reason why the native evaluator does not run the function. */
  engine_reason?: string | undefined;
  /** Number of bail-outs (documents transferred from the native evaluator to the interpreter) by reason. */
  bail_outs?: Record<string, number> | undefined;
  documents: number;
  total_rows: number;
  map_us: number;
  reduce_us: number;
  per_document: { map_us: number; bytes: number; rows: number; emitted_bytes: number };
  timed_out: boolean;
  errors: { id: string | null; error: string; reason: string }[];
  log: string[];
}

const SHOWN = 200;

export function Playground({ db }: DbPage) {
  const [ddoc] = useParam('ddoc');
  const [name] = useParam('name');
  const [linkedMap] = useParam('map');
  const [linkedReduce] = useParam('reduce');
  const [sample, setSample] = useParam('sample', '100');
  const [dialog, setDialog] = useDialog();
  const known = useRequest((signal) => (ddoc === '' ? Promise.resolve([]) : designs(db, signal)), [db, ddoc]);
  const view = known.data?.find(({ _id }) => _id === `_design/${ddoc}`)?.views?.[name];
  const start = typeof view?.map === 'string' ? view.map : MAP;
  const mapped = useLinkedDraft(['playground', db, ddoc, name], linkedMap, start);
  const reduced = useLinkedDraft(['playground', db, ddoc, name, 'reduce'], linkedReduce, typeof view?.reduce === 'string' ? view.reduce : 'none');
  const code = mapped.text;
  const by = reduced.text === 'none' ? '' : reduced.text;
  const isTyped = code !== start || reduced.text !== (typeof view?.reduce === 'string' ? view.reduce : 'none');
  // The stored function must be loaded before the first request.
  const isReady = ddoc === '' || known.data !== undefined;
  const body = JSON.stringify({ map: code, ...(by === '' ? {} : { reduce: by }), sample: Number(sample) });
  const settled = useSettled(body, 300);
  // The address follows the settled text, because browsers limit the rate of address changes.
  useEffect(() => {
    if (!isReady || !isTyped || settled !== body) return;
    setParams({ map: code, reduce: reduced.text }, true);
    mapped.linked(code);
    reduced.linked(reduced.text);
  }, [settled, isReady]);
  // `settled` triggers the request, which sends the newest text.
  const result = useRequest(async (signal) => {
    if (!isReady) return undefined;
    const { text } = await send('POST', path`${db}/_view_test`, { body, signal });
    return { text, trial: trial(text) };
  }, [db, settled, isReady], 0, 'shown');
  const discard = () => {
    setParams({ map: undefined, reduce: undefined }, true);
    mapped.discard();
    reduced.discard();
  };
  const missing = result.error instanceof ApiError && (result.error.status === 404 || result.error.status === 405 || (result.error.status === 400 && /_view_test/.test(result.error.reason)));
  if (missing) return <Card><Empty icon="flask" title="This server has no playground">Only Settee runs functions that are not stored. Views are edited under <Link to={['db', db, 'designs']}>Views</Link>.</Empty></Card>;
  return (
    <div class="play">
      <div class="stack">
        <Card title="Map" actions={<CopyAs request={{ method: 'POST', path: path`${db}/_view_test`, body }} />}>
          <Editor label="Map function" language="javascript" value={code} onValue={mapped.setText} lines={[12, 30]} complete={() => ['emit', 'doc', 'isArray', 'sum', 'log', 'toJSON', 'require']} />
        </Card>
        <Card title="Reduce"><Reduce label="Reduce function" language="javascript" value={by} onValue={(value) => reduced.setText(value === '' ? 'none' : value)} /></Card>
        <div class="row spread">
          <div class="row"><Select label="Sample" value={sample} onValue={setSample} options={[['20', '20 documents'], ['100', '100 documents'], ['500', '500 documents'], ['1000', '1000 documents']]} /></div>
          <div class="actions end">{isTyped && <Button kind="quiet" onClick={discard}>Undo all</Button>}<Button kind="primary" icon="check" onClick={() => setDialog('save')}>Save as a view</Button></div>
        </div>
      </div>
      <div class="stack"><Restored found={mapped.restored ?? reduced.restored} onDiscard={discard} /><Problem error={result.error} />{result.data ? <Outcome text={result.data.text} trial={result.data.trial} reduces={by !== ''} /> : !result.error && <Skeleton lines={10} />}</div>
      {dialog === 'save' && <Save db={db} ddoc={ddoc} name={name} map={code} reduce={by} onClose={() => setDialog('')} onSaved={discard} />}
    </div>
  );
}

/** Parses all members except the rows and the reduction, whose values must remain text. */
function trial(text: string): Trial {
  const root = parse(text);
  const of = (name: string): unknown => {
    const node = member(root, name);
    return node ? JSON.parse(raw(text, node)) : undefined;
  };
  return {
    engine: of('engine') as string, language: of('language') as string, engine_reason: of('engine_reason') as string | undefined, bail_outs: of('bail_outs') as Trial['bail_outs'], documents: of('documents') as number, total_rows: of('total_rows') as number,
    map_us: of('map_us') as number, reduce_us: of('reduce_us') as number, per_document: of('per_document') as Trial['per_document'], timed_out: of('timed_out') as boolean,
    errors: of('errors') as Trial['errors'], log: of('log') as string[],
  };
}

function Outcome({ text, trial, reduces }: { text: string; trial: Trial; reduces: boolean }) {
  const root = parse(text);
  const reduction = member(root, 'reduction');
  const { rows } = readRows(text);
  const isNative = trial.engine === 'native';
  return (
    <>
      <Card>
        <div class="row spread"><h2>On {number(trial.documents)} documents</h2><Tag kind={isNative ? 'good' : 'plain'}>{isNative ? 'runs natively' : `runs in ${trial.engine}`}</Tag></div>
        <dl class="stats">
          <div class="stat"><dt>per document</dt><dd>{trial.per_document.map_us.toFixed(1)} µs</dd></div>
          <div class="stat"><dt>rows</dt><dd>{number(trial.total_rows)}</dd></div>
          <div class="stat"><dt>rows per document</dt><dd>{trial.per_document.rows.toFixed(2)}</dd></div>
          <div class="stat"><dt>document size</dt><dd>{bytes(trial.per_document.bytes)}</dd></div>
          {reduces && <div class="stat"><dt>reduce</dt><dd>{(trial.reduce_us / 1000).toFixed(1)} ms</dd></div>}
        </dl>
        {!isNative && trial.language === 'javascript' && (
          <p class="note">Not natively{trial.engine_reason === undefined ? '' : <>: <strong>{trial.engine_reason}</strong></>}. Functions of a common subset (emit, conditions, members, loops, common methods of strings, numbers, arrays and dates) run natively, much faster.</p>
        )}
        {isNative && <BailOuts found={Object.entries(trial.bail_outs ?? {})} />}
        {trial.timed_out && <Notice kind="warn">The run reached its time limit before all documents were mapped.</Notice>}
      </Card>
      {trial.errors.length > 0 && <Card flush title="Errors"><ul class="key-list">{trial.errors.slice(0, 20).map((error, index) => <li key={index} class="inner"><p><strong>{error.reason}</strong></p><p class="note">{error.error}{error.id === null ? '' : `, document ${error.id}`}</p></li>)}</ul></Card>}
      {reduces && reduction && <Card flush title="Reduction of all rows"><Json text={format(text, reduction)} label="Reduction" /></Card>}
      <Card flush title="Rows" note={rows.length > SHOWN ? `The first ${SHOWN} of ${number(trial.total_rows)}` : undefined}>
        {rows.length === 0 ? <Empty icon="table" title="No rows">The function emits no rows for these documents.</Empty> : (
          <div class="table-wrap" tabIndex={0} role="region" aria-label="Rows"><table class="one-line">
            <caption class="unseen">Rows of the sample</caption>
            <thead><tr><th scope="col">Key</th><th scope="col">Value</th><th scope="col">Document</th></tr></thead>
            <tbody>{rows.slice(0, SHOWN).map((row, index) => <tr key={index}><td class="mono">{row.key.slice(0, 200)}</td><td class="mono">{row.value.slice(0, 200)}</td><td class="quiet-text">{row.id}</td></tr>)}</tbody>
          </table></div>
        )}
      </Card>
      {trial.log.length > 0 && <Card flush title="Log"><Json text={trial.log.join('\n')} label="Log" /></Card>}
    </>
  );
}

function BailOuts({ found }: { found: [string, number][] }) {
  if (found.length === 0) return null;
  return (
    <Notice kind="info">The interpreter, which is slower, ran the function for some documents:
      <ul>{found.map(([reason, documents]) => <li key={reason}>{reason}: {plural(documents, 'document')}</li>)}</ul>
    </Notice>
  );
}

function Save({ db, ddoc, name, map, reduce, onClose, onSaved }: { db: string; ddoc: string; name: string; map: string; reduce: string; onClose: () => void; onSaved: () => void }) {
  const [design, setDesign] = useState(ddoc);
  const [view, setView] = useState(name);
  const known = useRequest((signal) => designs(db, signal).catch(() => []), [db]);
  const { busy, error, run } = useAction();
  useEffect(() => { setDesign(ddoc); setView(name); }, [ddoc, name]);
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const old = await send('GET', designPath(db, design)).then(({ text }) => text).catch((problem: unknown) => {
        if (problem instanceof ApiError && problem.status === 404) return '{"language":"javascript"}';
        throw problem;
      });
      let body = setAt(old, ['views', view, 'map'], JSON.stringify(map));
      if (reduce !== '' || getAt(body, ['views', view, 'reduce']) !== undefined) body = setAt(body, ['views', view, 'reduce'], reduce === '' ? undefined : JSON.stringify(reduce));
      await saveText(db, design, body);
      onSaved();
      showToast(`${design}/${view} is saved; the server builds its index.`);
      go(['db', db, 'view', design, view]);
    });
  };
  return (
    <Dialog title="Save as a view" onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <ChoiceField label="Design document" value={design} onValue={setDesign} choices={(known.data ?? []).map(({ _id }) => _id.slice('_design/'.length))} required mono />
        <Field label="View" value={view} onValue={setView} required mono hint="An existing view of this name is replaced." />
        <Problem error={error} />
        <div class="actions end"><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit" busy={busy}>Save</Button></div>
      </form>
    </Dialog>
  );
}
