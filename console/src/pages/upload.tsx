/** Upload of a file: preview of its documents and progress. The file is read in the browser. */
import { useRef, useState } from 'preact/hooks';
import { NO_PROGRESS, batches, postTo, storeBatch, assignIds, type Progress } from '../api/upload.ts';
import { readFile, type Import, type Refusal } from '../json/import.ts';
import { columns, fields } from '../json/rows.ts';
import { parse, member, stringOf } from '../json/text.ts';
import { guardUnload } from '../ui/draft.tsx';
import { Button, Card, Empty, LinkButton, Meter, Problem, showToast } from '../ui/kit.tsx';
import { signal, useSignal, type Signal } from '../ui/signal.ts';
import { useAction } from '../ui/use.ts';
import { bytes, number, plural } from '../ui/words.ts';
import type { DbPage } from './db.tsx';
import { cell } from './documents.tsx';

/** State of an upload, which continues while another page is shown. */
interface UploadState extends Import {
  name: string;
  size: number;
  sent: Progress | undefined;
  busy: boolean;
  error: Error | undefined;
  control: AbortController;
}

const PREVIEW = 20;
/** Maximum number of refusals in the table. The downloaded list is complete. */
const SHOWN_REFUSALS = 500;

const uploads = new Map<string, Signal<UploadState | undefined>>();

function uploadOf(db: string): Signal<UploadState | undefined> {
  const found = uploads.get(db) ?? signal<UploadState | undefined>(undefined);
  uploads.set(db, found);
  return found;
}

async function upload(db: string, at: Signal<UploadState | undefined>): Promise<void> {
  const chosen = at.value;
  if (!chosen || chosen.busy) return;
  const control = new AbortController();
  const progress: Progress = { ...(chosen.sent ?? NO_PROGRESS), refused: [...(chosen.sent?.refused ?? [])] };
  const show = (change: Partial<UploadState>) => { if (at.value?.docs === chosen.docs) at.value = { ...at.value, sent: { ...progress }, ...change }; };
  show({ busy: true, error: undefined, control });
  const release = guardUnload();
  try {
    for (const batch of batches(chosen.docs.slice(progress.done))) {
      if (control.signal.aborted) break;
      await assignIds(batch, control.signal);
      await storeBatch(batch, postTo(db, control.signal), progress);
      show({});
    }
    show({ busy: false });
    if (!control.signal.aborted) showToast(`${plural(progress.saved, 'document')} saved.`);
  } catch (error) {
    show({ busy: false, error: control.signal.aborted ? undefined : (error as Error) });
  } finally {
    release();
  }
}

export function Upload({ db, again }: DbPage) {
  const at = uploadOf(db);
  const chosen = useSignal(at);
  const [over, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const reading = useAction();
  const read = (file: File | undefined) => file && void reading.run(async () => {
    chosen?.control.abort();
    at.value = { name: file.name, size: file.size, ...readFile(file.name, await file.text()), sent: undefined, busy: false, error: undefined, control: new AbortController() };
  });
  const start = () => void upload(db, at).then(again);
  const isDone = chosen?.sent !== undefined && chosen.sent.done === chosen.docs.length;
  const rest = chosen ? chosen.docs.length - (chosen.sent?.done ?? 0) : 0;
  return (
    <div class="stack">
      <div class={`drop ${over ? 'over' : ''}`} onDragOver={(event) => { event.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)}
        onDrop={(event) => { event.preventDefault(); setOver(false); read(event.dataTransfer?.files[0]); }}>
        <p>Drop a file of JSON, NDJSON or CSV here</p>
        <Button icon="upload" onClick={() => input.current?.click()}>Choose a file</Button>
        <input ref={input} type="file" accept=".json,.ndjson,.jsonl,.csv,.tsv,.txt" hidden aria-label="File with documents" onChange={(event) => { read(event.currentTarget.files?.[0]); event.currentTarget.value = ''; }} />
        <p class="note">Numbers are stored exactly as written in the file. The member <code>_id</code> is the id of a document; the server generates missing ids.</p>
      </div>
      <Problem error={reading.error} />
      {chosen && (
        <Card flush title={chosen.name} note={`${chosen.format}, ${bytes(chosen.size)}, ${plural(chosen.docs.length, 'document')}`} actions={
          <>
            {chosen.busy && <Button icon="stop" onClick={() => chosen.control.abort()}>Stop</Button>}
            {isDone ? <LinkButton to={['db', db]} kind="primary">To the documents</LinkButton> : <Button kind="primary" icon="upload" busy={chosen.busy} disabled={rest === 0} onClick={start}>{chosen.sent && !chosen.busy ? `Continue with ${number(rest)}` : `Save ${number(rest)}`}</Button>}
          </>
        }>
          {chosen.sent && <div class="inner stack small"><Meter label="Upload" value={(100 * chosen.sent.done) / Math.max(1, chosen.docs.length)} /><p role="status" class="note">{number(chosen.sent.saved)} saved, {number(chosen.sent.refused.length)} refused, of {number(chosen.docs.length)}.</p></div>}
          {chosen.error && <div class="inner"><Problem error={chosen.error} /></div>}
          <Refusals name={chosen.name} found={[...chosen.problems, ...(chosen.sent?.refused ?? [])]} />
          {chosen.docs.length === 0 ? <Empty icon="file" title="The file contains no documents" /> : <Preview docs={chosen.docs.slice(0, PREVIEW).map(({ text }) => text)} />}
        </Card>
      )}
    </div>
  );
}

function Refusals({ name, found }: { name: string; found: Refusal[] }) {
  if (found.length === 0) return null;
  const sorted = found.toSorted((a, b) => a.line - b.line);
  const download = () => {
    const lines = sorted.map(({ line, id, reason }) => JSON.stringify({ line, id, reason }));
    const url = URL.createObjectURL(new Blob([`${lines.join('\n')}\n`], { type: 'application/x-ndjson' }));
    const link = document.createElement('a');
    link.href = url;
    link.download = `${name}.refused.ndjson`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  return (
    <>
      <div class="row spread inner"><h3>{plural(found.length, 'line')} {found.length === 1 ? 'is' : 'are'} not stored</h3><Button onClick={download}>Download the list</Button></div>
      <div class="table-wrap refusals" tabIndex={0} role="region" aria-label="Lines that are not stored"><table>
        <caption class="unseen">Lines that are not stored</caption>
        <thead><tr><th scope="col" class="num">Line</th><th scope="col">Id</th><th scope="col">Reason</th></tr></thead>
        <tbody>{sorted.slice(0, SHOWN_REFUSALS).map((each, index) => <tr key={index}><td class="num tight">{each.line}</td><td class="mono break">{each.id ?? <span class="quiet-text">none</span>}</td><td>{each.reason}</td></tr>)}</tbody>
      </table></div>
      {sorted.length > SHOWN_REFUSALS && <p class="inner note">The first {number(SHOWN_REFUSALS)} lines. The downloaded list is complete.</p>}
    </>
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
        <tr key={index}><td class="mono">{idOf(docs[index] ?? '{}') ?? <span class="quiet-text">generated</span>}</td>{names.map((name) => <td key={name}>{cell(row.get(name)).slice(0, 80)}</td>)}</tr>
      ))}</tbody>
    </table></div>
  );
}

function idOf(doc: string): string | undefined {
  return stringOf(doc, member(parse(doc), '_id'));
}
