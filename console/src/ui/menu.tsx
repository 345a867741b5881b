/** A button that opens a list of actions. Escape and a click outside of it close the list. */
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { CLIENTS, copyAs, type Shown } from '../api/copy.ts';
import { Icon, type IconName } from './icons.tsx';
import { copyText } from './kit.tsx';

export interface MenuItem {
  text: string;
  icon?: IconName;
  act: () => void;
}

export function Menu({ label, icon, text, items, said }: { label: string; icon: IconName; text?: string; items: MenuItem[]; said?: ComponentChildren }) {
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState({});
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const away = (event: Event) => {
      if (!box.current?.contains(event.target as Node)) setOpen(false);
    };
    const close = () => setOpen(false);
    addEventListener('pointerdown', away);
    addEventListener('focusin', away);
    addEventListener('resize', close);
    addEventListener('wheel', close, { passive: true });
    box.current?.querySelector<HTMLButtonElement>('ul button')?.focus();
    return () => {
      removeEventListener('pointerdown', away);
      removeEventListener('focusin', away);
      removeEventListener('resize', close);
      removeEventListener('wheel', close);
    };
  }, [open]);
  const toggle = () => {
    const button = box.current?.getBoundingClientRect();
    // Positioned relative to the window, because scrolling containers would clip it; above the button if more space is available there.
    if (button) {
      const below = innerHeight - button.bottom > Math.min(280, button.top);
      setAt({ right: `${Math.max(8, Math.min(innerWidth - 198, innerWidth - button.right))}px`, ...(below ? { top: `${button.bottom + 4}px` } : { bottom: `${innerHeight - button.top + 4}px` }) });
    }
    setOpen(!open);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (!open) return;
    const buttons = [...(box.current?.querySelectorAll<HTMLButtonElement>('ul button') ?? [])];
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (event.key === 'Escape') {
      setOpen(false);
      box.current?.querySelector('button')?.focus();
    } else if (step !== 0) buttons[(at + step + buttons.length) % buttons.length]?.focus();
    else return;
    event.preventDefault();
  };
  return (
    <div class="menu" ref={box} onKeyDown={onKeyDown}>
      <button type="button" class={`button quiet ${text ? '' : 'square'}`} aria-expanded={open} aria-label={text ? undefined : label} title={label} onClick={toggle}>
        <Icon name={icon} />{text && <span>{text}</span>}
      </button>
      {open && (
        <ul aria-label={label} style={at}>
          {said && <li class="said">{said}</li>}
          {items.map((item) => (
            <li key={item.text}>
              <button type="button" onClick={() => { setOpen(false); item.act(); }}>{item.icon && <Icon name={item.icon} />}{item.text}</button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

export function CopyAs({ request }: { request: Shown }) {
  const items = CLIENTS.map((client) => ({ text: `Copy as ${client}`, icon: 'copy' as const, act: () => void copyText(copyAs(client, request), client) }));
  return <Menu label="Copy this request" icon="code" text="Copy as" items={items} />;
}
