/** Documents from a file: read here, looked at first, then sent in batches. */
import { useRef, useState } from 'preact/hooks';
import { enc, send } from '../api/http.ts';
import { readFile, type Import } from '../json/import.ts';
import { columns, fields } from '../json/rows.ts';
import { parse, member, stringOf } from '../json/text.ts';
import { Button, Card, Empty, LinkButton, Meter, Notice, Problem, say } from '../ui/kit.tsx';
import { useAction, useTitle } from '../ui/use.ts';
import { bytes, number, plural } from '../ui/words.ts';
import type { DbPage } from './db.tsx';
import { cell } from './documents.tsx';

interface Chosen extends Import {
  name: string;
  size: number;
}

const PREVIEW = 20;
const BATCH_DOCS = 500;
const BATCH_BYTES = 2_000_000;
const SHOWN_FAILURES = 20;

export function Upload({ db, again }: DbPage) {
  useTitle(`Upload to ${db}`);
  const [chosen, setChosen] = useState<Chosen>();
  const [over, setOver] = useState(false);
  const [sent, setSent] = useState<{ done: number; saved: number; failures: string[] }>();
  const stop = useRef<AbortController>();
  const input = useRef<HTMLInputElement>(null);
  const { busy, error, run } = useAction();
  const read = (file: File | undefined) => file && void run(async () => {
    setSent(undefined);
    setChosen({ name: file.name, size: file.size, ...readFile(file.name, await file.text()) });
  });
  const upload = () => chosen && void run(async () => {
    const control = new AbortController();
    stop.current = control;
    const state = { done: 0, saved: 0, failures: [] as string[] };
    setSent({ ...state });
    for (const batch of batches(chosen.docs)) {
      if (control.signal.aborted) break;
      const { text } = await send('POST', `${enc(db)}/_bulk_docs`, { body: `{"docs":[${batch.join(',')}]}`, signal: control.signal });
      for (const outcome of JSON.parse(text) as { id?: string; error?: string; reason?: string }[]) {
        if (outcome.error === undefined) state.saved += 1;
        else state.failures.push(`${outcome.id ?? 'a document'}: ${outcome.reason ?? outcome.error}`);
      }
      state.done += batch.length;
      setSent({ ...state, failures: [...state.failures] });
    }
    again();
    say(`${plural(state.saved, 'document')} saved.`);
  });
  const isDone = sent !== undefined && chosen !== undefined && sent.done === chosen.docs.length;
  return (
    <div class="stack">
      <div class={`drop ${over ? 'over' : ''}`} onDragOver={(event) => { event.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)}
        onDrop={(event) => { event.preventDefault(); setOver(false); read(event.dataTransfer?.files[0]); }}>
        <p>Drop a file of JSON, NDJSON or CSV here</p>
        <Button icon="upload" onClick={() => input.current?.click()}>Choose a file</Button>
        <input ref={input} type="file" accept=".json,.ndjson,.jsonl,.csv,.tsv,.txt" hidden aria-label="File with documents" onChange={(event) => { read(event.currentTarget.files?.[0]); event.currentTarget.value = ''; }} />
        <p class="note">Numbers are stored exactly as the file has them. What is in `_id` becomes the id; without it the server makes one.</p>
      </div>
      <Problem error={error} />
      {chosen && (
        <Card flush title={chosen.name} note={`${chosen.format}, ${bytes(chosen.size)}, ${plural(chosen.docs.length, 'document')}`} actions={
          <>
            {busy && <Button icon="stop" onClick={() => stop.current?.abort()}>Stop</Button>}
            {isDone ? <LinkButton to={['db', db]} kind="primary">To the documents</LinkButton> : <Button kind="primary" icon="upload" busy={busy} disabled={chosen.docs.length === 0} onClick={upload}>Save {number(chosen.docs.length)}</Button>}
          </>
        }>
          {sent && <div class="inner stack small"><Meter label="Upload" value={(100 * sent.done) / Math.max(1, chosen.docs.length)} /><p role="status" class="note">{number(sent.saved)} saved, {number(sent.failures.length)} refused, of {number(chosen.docs.length)}.</p>
            {sent.failures.length > 0 && <Notice kind="warn">{sent.failures.slice(0, SHOWN_FAILURES).map((text, index) => <p key={index}>{text}</p>)}</Notice>}</div>}
          {chosen.problems.length > 0 && <div class="inner"><Notice kind="warn">{chosen.problems.map((text, index) => <p key={index}>{text}</p>)}</Notice></div>}
          {chosen.docs.length === 0 ? <Empty icon="file" title="There are no documents in this file" /> : <Preview docs={chosen.docs.slice(0, PREVIEW)} />}
        </Card>
      )}
    </div>
  );
}

function Preview({ docs }: { docs: string[] }) {
  const rows = docs.map(fields);
  const names = columns(rows, 8);
  return (
    <div class="table-wrap" tabIndex={0} role="region" aria-label="The first documents of the file"><table class="one-line">
      <caption class="unseen">The first documents of the file</caption>
      <thead><tr><th scope="col">_id</th>{names.map((name) => <th key={name} scope="col">{name}</th>)}</tr></thead>
      <tbody>{rows.map((row, index) => (
        <tr key={index}><td class="mono">{idOf(docs[index] ?? '{}') ?? <span class="quiet-text">made by the server</span>}</td>{names.map((name) => <td key={name}>{cell(row.get(name)).slice(0, 80)}</td>)}</tr>
      ))}</tbody>
    </table></div>
  );
}

function idOf(doc: string): string | undefined {
  return stringOf(doc, member(parse(doc), '_id'));
}

export function* batches(docs: string[]): Generator<string[]> {
  let batch: string[] = [];
  let size = 0;
  for (const doc of docs) {
    if (batch.length > 0 && (batch.length >= BATCH_DOCS || size + doc.length > BATCH_BYTES)) {
      yield batch;
      batch = [];
      size = 0;
    }
    batch.push(doc);
    size += doc.length;
  }
  if (batch.length > 0) yield batch;
}
