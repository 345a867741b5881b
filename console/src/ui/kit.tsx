/** Components that all pages share. */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { ApiError, advice } from '../api/http.ts';
import { href, type Query } from '../router.ts';
import { Icon, type IconName } from './icons.tsx';
import { signal, useSignal } from './signal.ts';

type Children = ComponentChildren;

export function Link({ to, query, children, class: name, ...rest }: { to: string[]; query?: Query | undefined; children: Children; class?: string | undefined } & JSX.HTMLAttributes<HTMLAnchorElement>) {
  return <a {...rest} class={name ?? ''} href={href(to, query)}>{children}</a>;
}

interface ButtonProps extends Omit<JSX.HTMLAttributes<HTMLButtonElement>, 'icon'> {
  kind?: 'plain' | 'primary' | 'danger' | 'quiet';
  icon?: IconName;
  busy?: boolean;
  disabled?: boolean;
  type?: 'button' | 'submit';
  /** Accessible name of a button without text. */
  label?: string;
}

export function Button({ kind = 'plain', icon, busy, disabled, type = 'button', label, children, ...rest }: ButtonProps) {
  return (
    <button {...rest} type={type} class={`button ${kind} ${label && !children ? 'square' : ''}`} disabled={disabled || busy} aria-busy={busy || undefined}
      aria-label={label} title={label}>
      {busy ? <span class="spinner" /> : icon && <Icon name={icon} />}
      {children && <span>{children}</span>}
    </button>
  );
}

export function LinkButton({ to, query, kind = 'plain', icon, children }: { to: string[]; query?: Query; kind?: 'plain' | 'primary' | 'quiet'; icon?: IconName; children: Children }) {
  return <a class={`button ${kind}`} href={href(to, query)}>{icon && <Icon name={icon} />}<span>{children}</span></a>;
}

interface FieldProps extends Omit<JSX.InputHTMLAttributes<HTMLInputElement>, 'label' | 'onInput' | 'value'> {
  label: string;
  value: string;
  onValue: (value: string) => void;
  hint?: Children;
  problem?: string | undefined;
  mono?: boolean;
  hideLabel?: boolean;
}

export function Field({ label, value, onValue, hint, problem, mono, hideLabel, ...rest }: FieldProps) {
  const id = useId();
  const notes = hint || problem ? `${id}-notes` : undefined;
  return (
    <div class="field">
      <label class={hideLabel ? 'unseen' : ''} for={id}>{label}</label>
      <input {...rest} id={id} class={mono ? 'mono' : ''} value={value} onInput={(event) => onValue(event.currentTarget.value)}
        aria-describedby={notes} aria-invalid={problem ? true : undefined} spellcheck={false} />
      {notes && <p id={notes} class={problem ? 'hint problem' : 'hint'}>{problem ?? hint}</p>}
    </div>
  );
}

export function TextArea({ label, value, onValue, rows = 4, hint, mono }: { label: string; value: string; onValue: (value: string) => void; rows?: number; hint?: Children; mono?: boolean }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea id={id} rows={rows} class={mono ? 'mono' : ''} spellcheck={false} value={value} onInput={(event) => onValue(event.currentTarget.value)} />
      {hint && <p class="hint">{hint}</p>}
    </div>
  );
}

export function Select({ label, value, onValue, options, hideLabel }: { label: string; value: string; onValue: (value: string) => void; options: (string | [string, string])[]; hideLabel?: boolean }) {
  const id = useId();
  return (
    <div class="field">
      <label class={hideLabel ? 'unseen' : ''} for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onValue(event.currentTarget.value)}>
        {options.map((option) => {
          const [key, text] = typeof option === 'string' ? [option, option] : option;
          return <option key={key} value={key} selected={key === value}>{text}</option>;
        })}
      </select>
    </div>
  );
}

export function Check({ label, checked, onChecked, hint, disabled }: { label: string; checked: boolean; onChecked: (checked: boolean) => void; hint?: string; disabled?: boolean }) {
  const id = useId();
  return (
    <div class="check">
      <input type="checkbox" id={id} checked={checked} disabled={disabled} onChange={(event) => onChecked(event.currentTarget.checked)} aria-describedby={hint && `${id}-hint`} />
      <label for={id}>{label}</label>
      {hint && <p id={`${id}-hint`} class="hint">{hint}</p>}
    </div>
  );
}

export function Segments({ label, value, options, onValue }: { label: string; value: string; options: [string, string][]; onValue: (value: string) => void }) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map(([key, text]) => (
        <button key={key} type="button" aria-pressed={key === value} onClick={() => onValue(key)}>{text}</button>
      ))}
    </div>
  );
}

/** Options of `Segments` for the order of a list. */
export const ORDERS: [string, string][] = [['up', 'Ascending'], ['down', 'Descending']];

/** Tabs are links, because each tab has an address. */
export function Tabs({ label, items }: { label: string; items: { text: Children; to: string[]; query?: Query; current: boolean }[] }) {
  return (
    <nav class="tabs" aria-label={label}>
      {items.map((item, index) => (
        <Link key={index} to={item.to} query={item.query} aria-current={item.current ? 'page' : undefined}>{item.text}</Link>
      ))}
    </nav>
  );
}

export function PageHead({ title, note, children }: { title: Children; note?: Children; children?: Children }) {
  return (
    <div class="page-head">
      <div class="page-title">
        <h1 tabIndex={-1}>{title}</h1>
        {note && <p class="note">{note}</p>}
      </div>
      {children && <div class="actions">{children}</div>}
    </div>
  );
}

export function Card({ title, note, actions, children, flush }: { title?: Children; note?: Children; actions?: Children; children?: Children; flush?: boolean }) {
  return (
    <section class={`card ${flush ? 'flush' : ''}`}>
      {(title || actions) && (
        <div class="card-head">
          <div>
            {title && <h2>{title}</h2>}
            {note && <p class="note">{note}</p>}
          </div>
          {actions && <div class="actions">{actions}</div>}
        </div>
      )}
      {children}
    </section>
  );
}

export function Empty({ icon, title, children, action }: { icon: IconName; title: string; children?: Children; action?: Children }) {
  return (
    <div class="empty">
      <div class="empty-icon"><Icon name={icon} size={28} /></div>
      <p class="empty-title">{title}</p>
      {children && <p class="empty-text">{children}</p>}
      {action && <div class="actions">{action}</div>}
    </div>
  );
}

export function Skeleton({ lines = 6 }: { lines?: number }) {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, index) => <div key={index} class={`bone bone-${index % 4}`} />)}
    </div>
  );
}

export function Problem({ error, again }: { error: Error | undefined; again?: () => void }) {
  if (!error) return null;
  const status = error instanceof ApiError && error.status > 0 ? `${error.status} ${error.error}` : undefined;
  const help = advice(error);
  return (
    <div class="problem-box" role="alert">
      <Icon name="warning" />
      <div>
        <p><strong><Sentence text={error.message} /></strong>{status && <span class="code-tag">{status}</span>}</p>
        {help && <p>{help}</p>}
      </div>
      {again && <Button icon="refresh" onClick={again}>Try again</Button>}
    </div>
  );
}

/** Renders a message of the server, in which backticks enclose code. */
export function Sentence({ text }: { text: string }) {
  return <>{text.split(/`([^`]+)`/).map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))}</>;
}

export function Notice({ children, kind = 'info' }: { children: Children; kind?: 'info' | 'warn' }) {
  return <div class={`notice ${kind}`}><Icon name={kind === 'warn' ? 'warning' : 'info'} /><div>{children}</div></div>;
}

export function Tag({ kind = 'plain', children }: { kind?: 'plain' | 'good' | 'warn' | 'bad' | 'accent'; children: Children }) {
  return <span class={`tag ${kind}`}>{children}</span>;
}

export function Meter({ value, label }: { value: number; label: string }) {
  const percent = Math.max(0, Math.min(100, value));
  return (
    <div class="meter" role="progressbar" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(percent)}>
      <div class="meter-fill" style={{ width: `${percent}%` }} />
    </div>
  );
}

export function Stat({ label, value, note }: { label: string; value: Children; note?: Children }) {
  return <div class="stat"><dt>{label}</dt><dd>{value}</dd>{note && <dd class="note">{note}</dd>}</div>;
}

/** A modal `<dialog>`, in which the browser traps the focus and which Escape closes. */
export function Dialog({ title, onClose, children, wide }: { title: string; onClose: () => void; children: Children; wide?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useLayoutEffect(() => {
    const dialog = ref.current;
    dialog?.showModal();
    // Without this the browser focuses the first element, which is the button that closes the dialog.
    if (!dialog?.contains(document.activeElement) || document.activeElement?.closest('.dialog-head')) dialog?.querySelector<HTMLElement>('input, select, textarea')?.focus();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={ref} class={wide ? 'wide' : ''} aria-labelledby={id} onCancel={(event) => { event.preventDefault(); onClose(); }}
      onClick={(event) => { if (event.target === ref.current) onClose(); }}>
      <div class="dialog-body">
        <div class="dialog-head"><h2 id={id}>{title}</h2><Button kind="quiet" icon="close" label="Close" onClick={onClose} /></div>
        {children}
      </div>
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  children: Children;
  verb: string;
  /** Text that the user must type to confirm. */
  typed?: string;
  act: () => Promise<unknown>;
  onClose: () => void;
  wide?: boolean;
}

export function Confirm({ title, children, verb, typed, act, onClose, wide = false }: ConfirmProps) {
  const [text, setText] = useState('');
  const [error, setError] = useState<Error>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await act();
      onClose();
    } catch (problem) {
      setError(problem as Error);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose} wide={wide}>
      <form class="stack" onSubmit={(event) => void submit(event)}>
        <div class="prose">{children}</div>
        {typed !== undefined && <Field label={`Type ${typed} to confirm`} value={text} onValue={setText} autocomplete="off" mono />}
        <Problem error={error} />
        <div class="actions end">
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="danger" type="submit" busy={busy} disabled={typed !== undefined && text !== typed}>{verb}</Button>
        </div>
      </form>
    </Dialog>
  );
}

interface ToastAction {
  text: string;
  act: () => void;
}

const TOAST_MS = 5000;
const TOAST_WITH_ACTION_MS = 15_000;

const toast = signal<{ text: string; id: number; action: ToastAction | undefined } | undefined>(undefined);
let toastId = 0;

export function showToast(text: string, action?: ToastAction): void {
  toastId += 1;
  toast.value = { text, id: toastId, action };
}

export function Toast() {
  const shown = useSignal(toast);
  useEffect(() => {
    if (!shown) return;
    const timer = setTimeout(() => { toast.value = undefined; }, shown.action ? TOAST_WITH_ACTION_MS : TOAST_MS);
    return () => clearTimeout(timer);
  }, [shown?.id]);
  return <div class="toast-place" role="status" aria-live="polite">{shown && <div class="toast"><span>{shown.text}</span>{shown.action && <button type="button" onClick={() => { toast.value = undefined; shown.action?.act(); }}>{shown.action.text}</button>}</div>}</div>;
}

export async function copyText(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers provide the clipboard API only in secure contexts.
    const area = document.createElement('textarea');
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  showToast(`${what} copied.`);
}

export function Json({ text, label }: { text: string; label?: string }) {
  return <pre class="json" tabIndex={0} aria-label={label}>{text}</pre>;
}
