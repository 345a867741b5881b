import { useEffect, useRef, useState } from 'preact/hooks';
import { download, exportAs, type Source } from '../api/export.ts';
import { FORMATS, type ExportFormat } from '../json/export.ts';
import { Button, Dialog, Problem, showToast } from './kit.tsx';
import { Menu } from './menu.tsx';
import { bytes, plural } from './words.ts';

/** `source` is called once for each export. */
export function Export({ name, source }: { name: string; source: () => Source }) {
  const [format, setFormat] = useState<ExportFormat>();
  return (
    <>
      <Menu label="Export this list" icon="download" text="Export" items={FORMATS.map((each) => ({ text: `Export as ${each}`, icon: 'download' as const, act: () => setFormat(each) }))} />
      {format && <Running name={name} format={format} source={source} onClose={() => setFormat(undefined)} />}
    </>
  );
}

function Running({ name, format, source, onClose }: { name: string; format: ExportFormat; source: () => Source; onClose: () => void }) {
  const [count, setCount] = useState(0);
  const [error, setError] = useState<Error>();
  const close = useRef(onClose);
  close.current = onClose;
  useEffect(() => {
    const control = new AbortController();
    exportAs(format, source(), control.signal, setCount).then((exported) => {
      if (control.signal.aborted) return;
      download(exported.file, name, format);
      showToast(`${plural(exported.count, 'row')} exported, ${bytes(exported.file.size)}.`);
      close.current();
    }).catch((problem: unknown) => { if (!control.signal.aborted) setError(problem as Error); });
    return () => control.abort();
  }, [format]);
  return (
    <Dialog title={`Export as ${format}`} onClose={onClose}>
      <p role="status">{plural(count, 'row')} read …</p>
      <Problem error={error} />
      <div class="actions end"><Button icon="stop" onClick={onClose}>Stop</Button></div>
    </Dialog>
  );
}
