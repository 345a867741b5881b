/** Editors of the functions of one design document. The text of other members is not modified. */
import { useState } from 'preact/hooks';
import { MAP, REDUCES, saveText } from '../api/design.ts';
import { send } from '../api/http.ts';
import { designPath } from '../api/paths.ts';
import { getAt, setAt } from '../json/edit.ts';
import { member, parse, plain, withMembers } from '../json/text.ts';
import { go, setParams, useParam, useRoute } from '../router.ts';
import { Restored, useDraft, useForm } from '../ui/draft.tsx';
import { Editor } from '../ui/editor.tsx';
import { Button, Card, Confirm, Field, Link, LinkButton, Notice, Problem, Select, Skeleton, showToast } from '../ui/kit.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { BuildState } from './designs.tsx';
import type { DbPage } from './db.tsx';
import { SEARCH_STARTS, SearchIndex, newSearchIndex, type SearchKind } from './search-index.tsx';

const KINDS = ['views', 'nouveau', 'indexes', 'filters', 'updates', 'shows', 'lists'] as const;
type Kind = (typeof KINDS)[number];

const STARTS: Record<Kind | 'validate_doc_update', string> = {
  views: MAP,
  ...SEARCH_STARTS,
  filters: 'function (doc, req) {\n  return true;\n}',
  updates: 'function (doc, req) {\n  return [doc, "done"];\n}',
  shows: 'function (doc, req) {\n  return doc ? doc._id : "none";\n}',
  lists: 'function (head, req) {\n  var row;\n  while ((row = getRow())) send(row.key + "\\n");\n}',
  validate_doc_update: 'function (newDoc, oldDoc, userCtx, secObj) {\n  if (!newDoc.type) throw({ forbidden: "A document needs a type." });\n}',
};

/** Returns the names of all functions: `views/by_type`, `filters/mine`, `validate_doc_update`. */
function parts(text: string): string[] {
  const root = parse(text);
  const found = KINDS.flatMap((kind) => (member(root, kind)?.keys ?? []).filter((name) => name !== 'lib').map((name) => `${kind}/${name}`));
  return member(root, 'validate_doc_update') ? [...found, 'validate_doc_update'] : found;
}

interface SearchPart {
  kind: SearchKind;
  name: string;
}

function searchPart(part: string): SearchPart | undefined {
  const found = /^(nouveau|indexes)\/(.*)$/s.exec(part);
  return found ? { kind: found[1] as SearchKind, name: found[2] ?? '' } : undefined;
}

export function Design({ db }: DbPage) {
  const { path: at } = useRoute();
  const ddoc = at[3] ?? '';
  const [part] = useParam('part');
  const result = useRequest(async (signal) => (await send('GET', designPath(db, ddoc), { signal })).text, [db, ddoc]);
  if (result.error) return <Problem error={result.error} again={result.again} />;
  if (result.data === undefined) return <Skeleton />;
  const names = parts(result.data);
  const chosen = part || names[0] || 'new';
  return (
    <>
      <div class="row spread">
        <h2>_design/{ddoc}</h2>
        <div class="actions"><BuildState db={db} ddoc={ddoc} /><LinkButton to={['db', db, 'doc', `_design/${ddoc}`]} icon="file">As a document</LinkButton></div>
      </div>
      <div class="config">
        <nav aria-label="Functions">
          {names.map((name) => <Link key={name} to={['db', db, 'design', ddoc]} query={{ part: name }} aria-current={name === chosen ? 'true' : undefined}>{name}</Link>)}
          <Link to={['db', db, 'design', ddoc]} query={{ part: 'new' }} aria-current={chosen === 'new' ? 'true' : undefined}>+ new function</Link>
        </nav>
        {chosen === 'new' ? <New db={db} ddoc={ddoc} text={result.data} again={result.again} />
          : searchPart(chosen) ? <SearchIndex key={chosen} db={db} ddoc={ddoc} text={result.data} {...searchPart(chosen) as SearchPart} onSaved={result.put} again={result.again} />
          : <Function key={chosen} db={db} ddoc={ddoc} text={result.data} part={chosen} onSaved={result.put} again={result.again} />}
      </div>
    </>
  );
}

function stringAt(text: string, at: string[]): string | undefined {
  const found = getAt(text, at);
  return found === undefined ? undefined : plain(found, parse(found));
}

interface PartProps {
  db: string;
  ddoc: string;
  text: string;
  again: () => void;
}

function Function({ db, ddoc, text, part, onSaved, again }: PartProps & { part: string; onSaved: (text: string) => void }) {
  // Names may contain slashes.
  const slash = part.indexOf('/');
  const at = slash < 0 ? [part] : [part.slice(0, slash), part.slice(slash + 1)];
  const [kind, name = ''] = at;
  const isView = kind === 'views';
  const language = stringAt(text, ['language']) ?? 'javascript';
  const codeLanguage = language === 'javascript' ? 'javascript' : language === 'query' ? 'json' : 'text';
  const source = stringAt(text, isView ? [...at, 'map'] : at);
  const oldReduce = isView ? stringAt(text, [...at, 'reduce']) : undefined;
  // A function has no revision, so its text is the base of the draft.
  const mapped = useDraft(['design', db, ddoc, part], source ?? '', source ?? '');
  const reduced = useDraft(['design', db, ddoc, part, 'reduce'], oldReduce ?? '', oldReduce ?? '');
  const [code, reduce] = [mapped.text, reduced.text];
  const [confirming, setConfirming] = useState(false);
  const { busy, error, run } = useAction();
  const isChanged = source !== undefined && (mapped.isChanged || reduced.isChanged);
  const isStale = mapped.isStale || reduced.isStale;
  const discard = () => {
    mapped.discard();
    reduced.discard();
  };
  if (source === undefined) return <Notice>This design document has no function {part}.</Notice>;
  const save = () => void run(async () => {
    const [code, reduce] = [mapped.now(), reduced.now()];
    // Other functions of the document may have been saved since the page was loaded.
    const newest = (await send('GET', designPath(db, ddoc))).text;
    const isSame = [isView ? [...at, 'map'] : at, [...at, 'reduce']].every((each) => getAt(newest, each) === getAt(text, each));
    if (!isSame) {
      onSaved(newest);
      throw new Error(`${part} was saved by another client. Save again to replace it.`);
    }
    let body = setAt(newest, isView ? [...at, 'map'] : at, language === 'query' && isView ? code : JSON.stringify(code));
    if (isView) body = setAt(body, [...at, 'reduce'], reduce === '' ? undefined : JSON.stringify(reduce));
    const rev = await saveText(db, ddoc, body);
    const isLater = [mapped, reduced].some(({ now }, index) => now() !== [code, reduce][index]);
    onSaved(withMembers(body, { _rev: JSON.stringify(rev) }));
    mapped.saved(code, { base: code, rebase: (typed) => typed });
    reduced.saved(reduce, { base: reduce, rebase: (typed) => typed });
    showToast(isLater ? `${part} is saved, without your later changes.` : `${part} is saved.`);
    again();
  });
  return (
    <div class="stack">
      {isView && <Notice>Saving a changed map function rebuilds its index. Indexes of other views are kept. <Link to={['db', db, 'playground']} query={{ ddoc, name }}>Try it in the playground</Link> first.</Notice>}
      {isStale && !busy ? <Notice kind="warn"><p>The function has changed since you edited it.</p><p><Button onClick={discard}>Discard mine</Button></p></Notice> : <Restored found={mapped.restored ?? reduced.restored} onDiscard={discard} />}
      <Card title={isView ? 'Map' : part}><Editor label={isView ? `Map function of ${name}` : part} language={codeLanguage} value={code} onValue={mapped.setText} onSave={save} lines={[8, 28]} /></Card>
      {isView && language !== 'query' && <Card title="Reduce"><Reduce label={`Reduce function of ${name}`} value={reduce} onValue={reduced.setText} onSave={save} language={codeLanguage} /></Card>}
      <Problem error={error} />
      <div class="row spread">
        <div class="actions"><Button kind="primary" icon="check" busy={busy} disabled={!isChanged} onClick={save}>Save</Button>{isChanged && <Button kind="quiet" onClick={discard}>Undo all</Button>}{isView && language !== 'query' && <LinkButton to={['db', db, 'view', ddoc, name]} icon="table">Rows</LinkButton>}</div>
        <Button kind="danger" icon="trash" onClick={() => setConfirming(true)}>Delete {isView ? 'view' : 'function'}</Button>
      </div>
      {confirming && <Confirm title={`Delete ${part}?`} verb="Delete" onClose={() => setConfirming(false)} act={async () => {
        await saveText(db, ddoc, setAt(text, at, undefined));
        discard();
        setParams({ part: undefined });
        again();
      }}><p>{isView ? 'This also deletes its index.' : 'Requests that use this function will fail.'}</p></Confirm>}
    </div>
  );
}

export function Reduce({ label, value, onValue, onSave, language }: { label: string; value: string; onValue: (value: string) => void; onSave?: () => void; language: 'javascript' | 'json' | 'text' }) {
  const kind = value === '' ? 'none' : REDUCES.includes(value) ? value : 'own';
  const choose = (next: string) => onValue(next === 'none' ? '' : next === 'own' ? 'function (keys, values, rereduce) {\n  return sum(values);\n}' : next);
  return (
    <div class="stack small">
      <Select label="Reduce by" value={kind} onValue={choose} options={[['none', 'none'], ...REDUCES.map((name) => [name, name] as [string, string]), ['own', 'custom function']]} />
      {kind === 'own' && <Editor label={label} language={language} value={value} onValue={onValue} {...(onSave ? { onSave } : {})} lines={[5, 18]} />}
    </div>
  );
}

function New({ db, ddoc, text, again }: PartProps) {
  const [requestedKind] = useParam('kind');
  const form = useForm(['new function', db, ddoc, requestedKind], { kind: requestedKind in STARTS ? requestedKind : 'views', name: '' });
  const { kind, name } = form.value;
  const { busy, error, run } = useAction();
  const isValidation = kind === 'validate_doc_update';
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      const at = isValidation ? [kind] : [kind, name];
      if (getAt(text, at) !== undefined) throw new Error(`${at.join('/')} exists already. Choose another name.`);
      const start = STARTS[kind as Kind];
      const isSearch = kind === 'nouveau' || kind === 'indexes';
      await saveText(db, ddoc, isSearch ? setAt(text, at, newSearchIndex(kind)) : setAt(text, kind === 'views' ? [...at, 'map'] : at, JSON.stringify(start)));
      form.discard();
      again();
      go(['db', db, 'design', ddoc], { part: at.join('/') });
    });
  };
  return (
    <Card title="New function">
      <form class="stack" onSubmit={submit}>
        <Select label="Kind" value={kind} onValue={(next) => form.set({ kind: next })} options={[['views', 'View'], ['nouveau', 'Search index (nouveau)'], ['indexes', 'Search index (indexes, _search)'], ['filters', 'Filter of changes'], ['validate_doc_update', 'Validation of writes'], ['updates', 'Update function'], ['shows', 'Show function'], ['lists', 'List function']]} />
        <Restored found={form.restored} onDiscard={form.discard} />
        {!isValidation && <Field label="Name" value={name} onValue={(next) => form.set({ name: next })} required mono />}
        <Problem error={error} />
        <div class="actions"><Button kind="primary" type="submit" busy={busy}>Add</Button></div>
      </form>
    </Card>
  );
}
