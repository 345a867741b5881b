/** Dialog that edits one string of a document as plain text, so that line breaks and quotes need no escapes. */
import { useState } from 'preact/hooks';
import { parse, plain, type Node } from '../json/text.ts';
import { Button, Dialog, Select, TextArea } from '../ui/kit.tsx';
import { number, plural } from '../ui/words.ts';

export interface StringAt {
  path: string;
  node: Node;
}

/** Maximum number of strings in the list, which contains the longest ones. */
const STRINGS_MAX = 200;

/** Returns the strings of a document, the longest first, without id, revision and attachments. */
export function stringsOf(text: string): StringAt[] {
  const found: StringAt[] = [];
  const walk = (node: Node, path: string) => {
    if (node.kind === 'string') found.push({ path, node });
    node.children?.forEach((child, index) => {
      const name = node.keys?.[index];
      walk(child, name === undefined ? `${path}[${index}]` : path === '' ? name : `${path}.${name}`);
    });
  };
  walk(parse(text), '');
  return found.filter(({ path }) => path !== '_id' && path !== '_rev' && !path.startsWith('_attachments')).sort((a, b) => b.node.end - b.node.start - (a.node.end - a.node.start)).slice(0, STRINGS_MAX);
}

export function StringEditor({ text, onText, onClose }: { text: string; onText: (text: string) => void; onClose: () => void }) {
  const [strings] = useState(() => stringsOf(text));
  const [at, setAt] = useState('0');
  const chosen = strings[Number(at)];
  const [typed, setTyped] = useState(() => (chosen ? plain(text, chosen.node) : ''));
  const choose = (next: string) => {
    const other = strings[Number(next)];
    setAt(next);
    setTyped(other ? plain(text, other.node) : '');
  };
  const apply = (event: Event) => {
    event.preventDefault();
    if (chosen) onText(text.slice(0, chosen.node.start) + JSON.stringify(typed) + text.slice(chosen.node.end));
    onClose();
  };
  return (
    <Dialog title="Edit a string" wide onClose={onClose}>
      {!chosen ? <p>The document has no strings.</p> : (
        <form class="stack" onSubmit={apply}>
          <Select label="String" value={at} onValue={choose} options={strings.map(({ path, node }, index) => [String(index), `${path} (${plural(node.end - node.start - 2, 'character')})`])} />
          <TextArea label={`Text of ${chosen.path}`} value={typed} onValue={setTyped} rows={16} mono hint={`${number(typed.length)} characters. The document is saved with its Save button.`} />
          <div class="actions end"><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit">Apply</Button></div>
        </form>
      )}
    </Dialog>
  );
}
