/** A text editor. CodeMirror is loaded with the first editor; a plain text area replaces it if loading fails. */
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import type { Editor as Created, Language, Problem } from './codemirror.ts';

interface EditorProps {
  label: string;
  value: string;
  onValue?: (value: string) => void;
  language: Language;
  readOnly?: boolean;
  /** Minimum and maximum height in lines; `fill` uses the height of the container. */
  lines?: [number, number] | 'fill';
  problems?: (text: string) => Problem[];
  onSave?: () => void;
  complete?: (() => string[]) | undefined;
}

export function Editor({ label, value, onValue, language, readOnly = false, lines = [6, 24], problems, onSave, complete }: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<Created>();
  const [failed, setFailed] = useState(false);
  const hint = useId();
  // Texts that the editor reported and the page has not rendered yet. Rendering may lag behind typing, so an older
  // value must not replace the text in the editor.
  const reported = useRef<string[]>([]);
  // The editor is created once and reads the current properties from here.
  const latest = useRef({ onValue, onSave, problems, value, complete });
  latest.current = { onValue, onSave, problems, value, complete };
  useEffect(() => {
    let disposed = false;
    import('./codemirror.ts').then(({ create }) => {
      if (disposed || !host.current) return;
      editor.current = create(host.current, {
        label, language, readOnly, text: latest.current.value,
        changed: (text) => {
          reported.current.push(text);
          latest.current.onValue?.(text);
        },
        save: () => latest.current.onSave?.(),
        problems: (text) => latest.current.problems?.(text) ?? [],
        complete: () => latest.current.complete?.() ?? [],
      });
    }).catch(() => setFailed(true));
    return () => {
      disposed = true;
      editor.current?.destroy();
      editor.current = undefined;
    };
  }, [language, readOnly, label]);
  useEffect(() => {
    const at = reported.current.lastIndexOf(value);
    if (at >= 0) reported.current = reported.current.slice(at + 1);
    else {
      reported.current = [];
      editor.current?.set(value);
    }
  }, [value]);
  const style = lines === 'fill' ? {} : { minHeight: `${lines[0] * 20 + 16}px`, maxHeight: `${lines[1] * 20 + 16}px` };
  if (failed) {
    return <textarea class="mono editor-plain" aria-label={label} value={value} readOnly={readOnly} onInput={(event) => onValue?.(event.currentTarget.value)} style={style} />;
  }
  return (
    <div class={`editor ${lines === 'fill' ? 'fill' : ''}`}>
      <div ref={host} class="editor-host" style={style} data-editor={label} aria-describedby={hint} />
      {!readOnly && <p id={hint} class="unseen">Escape, then Tab, leaves the editor.</p>}
    </div>
  );
}
