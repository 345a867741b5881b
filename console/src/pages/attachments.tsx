/** Attachments of a document. Previews show text or images and never execute content. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { hasPlainLinks } from '../api/acting.ts';
import { downloadFile, objectSource } from '../api/export.ts';
import { getBlob, send } from '../api/http.ts';
import { attachmentPath, linkTo, query } from '../api/paths.ts';
import { Export } from '../ui/export.tsx';
import { Button, Card, Confirm, Dialog, Empty, Json, Problem, showToast } from '../ui/kit.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { bytes, plural } from '../ui/words.ts';
import type { Loaded } from './document.tsx';

export interface Stub {
  name: string;
  content_type: string;
  length: number;
  digest: string;
  revpos: number;
}

const PREVIEW_BYTES = 200_000;

export function Attachments({ db, doc, again }: { db: string; doc: Loaded; again: () => void }) {
  const [over, setOver] = useState(false);
  const [shown, setShown] = useState<Stub>();
  const [deleting, setDeleting] = useState<Stub>();
  const [progress, setProgress] = useState('');
  const input = useRef<HTMLInputElement>(null);
  const { busy, error, run } = useAction();
  const upload = (files: File[]) => void run(async () => {
    let rev = doc.rev;
    try {
      for (const [index, file] of files.entries()) {
        setProgress(`Uploading ${file.name} (${index + 1} of ${files.length}) …`);
        const answer = await send('PUT', `${attachmentPath(db, doc.id, file.name)}${query({ rev })}`, { body: file, type: file.type || 'application/octet-stream' });
        rev = (JSON.parse(answer.text) as { rev: string }).rev;
      }
      showToast(`${files.length === 1 ? (files[0]?.name ?? '') : `${files.length} files`} attached.`);
    } finally {
      again();
    }
  });
  const onDrop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length > 0) upload(files);
  };
  return (
    <div class="stack">
      <div class={`drop ${over ? 'over' : ''}`} onDragOver={(event) => { event.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)} onDrop={onDrop}>
        <p>Drop files here</p>
        <Button icon="upload" busy={busy} onClick={() => input.current?.click()}>Choose files</Button>
        <input ref={input} type="file" multiple hidden aria-label="Files to attach" onChange={(event) => { const files = [...(event.currentTarget.files ?? [])]; event.currentTarget.value = ''; if (files.length > 0) upload(files); }} />
        {busy && <p role="status">{progress}</p>}
      </div>
      <Problem error={error} />
      <Card flush {...(doc.attachments.length > 0 && { title: plural(doc.attachments.length, 'attachment'), actions: <Export name={`${doc.id}-attachments`} source={() => objectSource(doc.attachments.map(({ name, content_type, length, digest, revpos }) => ({ name, content_type, length, digest, revpos })))} /> })}>
        {doc.attachments.length === 0 ? <Empty icon="attach" title="No attachments">Attachments are files of any type. They replicate with the document.</Empty> : (
          <div class="table-wrap"><table>
            <caption class="unseen">Attachments</caption>
            <thead><tr><th scope="col">Name</th><th scope="col" class="hide-small">Type</th><th scope="col" class="num">Size</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
            <tbody>{doc.attachments.map((stub) => (
              <tr key={stub.name}>
                <td class="key">{stub.name}</td><td class="hide-small">{stub.content_type}</td><td class="num">{bytes(stub.length)}</td>
                <td class="tight"><span class="row">
                  <Button kind="quiet" onClick={() => setShown(stub)}>Preview</Button>
                  {hasPlainLinks ? <a class="button quiet" href={linkTo(attachmentPath(db, doc.id, stub.name))} download={stub.name.split('/').at(-1)}>Download</a>
                    : <Button kind="quiet" onClick={() => void run(async () => downloadFile(await getBlob(attachmentPath(db, doc.id, stub.name)), stub.name.split('/').at(-1) ?? ''))}>Download</Button>}
                  <Button kind="quiet" icon="trash" label={`Delete ${stub.name}`} onClick={() => setDeleting(stub)} />
                </span></td>
              </tr>
            ))}</tbody>
          </table></div>
        )}
      </Card>
      {shown && <Preview db={db} doc={doc} stub={shown} onClose={() => setShown(undefined)} />}
      {deleting && (
        <Confirm title="Delete this attachment?" verb="Delete" onClose={() => setDeleting(undefined)} act={async () => {
          await send('DELETE', `${attachmentPath(db, doc.id, deleting.name)}${query({ rev: doc.rev })}`);
          again();
        }}><p>{deleting.name}</p></Confirm>
      )}
    </div>
  );
}

function Preview({ db, doc, stub, onClose }: { db: string; doc: Loaded; stub: Stub; onClose: () => void }) {
  const path = `${attachmentPath(db, doc.id, stub.name)}${query({ rev: doc.rev })}`;
  const isPicture = /^image\/(?:png|jpeg|gif|webp|avif|bmp|svg\+xml|x-icon)$/.test(stub.content_type);
  const isText = /^text\/|json|xml|javascript|yaml|csv/.test(stub.content_type);
  const result = useRequest(async (signal) => {
    if (isPicture || !isText) return undefined;
    const headers: Record<string, string> = stub.length > PREVIEW_BYTES ? { Range: `bytes=0-${PREVIEW_BYTES - 1}` } : {};
    return (await send('GET', path, { signal, headers: { ...headers, Accept: '*/*' } })).text.slice(0, PREVIEW_BYTES);
  }, [path]);
  return (
    <Dialog title={stub.name} wide onClose={onClose}>
      <p class="note">{stub.content_type} · {bytes(stub.length)} · <span class="mono">{stub.digest}</span></p>
      {isPicture && (hasPlainLinks ? <img class="preview-image" src={linkTo(path)} alt={stub.name} /> : <RemotePicture path={path} name={stub.name} />)}
      <Problem error={result.error} />
      {result.data !== undefined && <Json text={result.data} label={stub.name} />}
      {!isPicture && !isText && <p>This type has no preview. Download the file to open it.</p>}
    </Dialog>
  );
}

/** Loads the picture by a request, because an image URL of another server is requested without credentials. */
function RemotePicture({ path, name }: { path: string; name: string }) {
  const result = useRequest((signal) => getBlob(path, signal), [path]);
  const [url, setUrl] = useState<string>();
  useEffect(() => {
    if (!result.data) return;
    const objectUrl = URL.createObjectURL(result.data);
    setUrl(objectUrl);
    return () => URL.revokeObjectURL(objectUrl);
  }, [result.data]);
  return <><Problem error={result.error} />{url !== undefined && <img class="preview-image" src={url} alt={name} />}</>;
}
