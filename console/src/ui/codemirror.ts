/**
 * Configuration of CodeMirror. The editor is created in a shadow root, because CodeMirror then uses constructed style sheets, which the
 * content security policy permits; elsewhere it inserts `<style>` elements, which the policy blocks.
 */
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, type CompletionContext } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { javascript } from '@codemirror/lang-javascript';
import { json } from '@codemirror/lang-json';
import { HighlightStyle, bracketMatching, foldGutter, foldKeymap, indentOnInput, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { lintGutter, lintKeymap, linter } from '@codemirror/lint';
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search';
import { EditorState, type Extension } from '@codemirror/state';
import { EditorView, drawSelection, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';

export type Language = 'json' | 'javascript' | 'text';

export interface Problem {
  from: number;
  to: number;
  message: string;
}

interface EditorOptions {
  label: string;
  language: Language;
  readOnly: boolean;
  text: string;
  changed: (text: string) => void;
  save: () => void;
  problems: (text: string) => Problem[];
  complete: () => string[];
}

export interface Editor {
  set(text: string): void;
  focus(): void;
  destroy(): void;
}

const COLOURS = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--code-name)' },
  { tag: [tags.string, tags.regexp], color: 'var(--code-string)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--code-number)' },
  { tag: [tags.keyword, tags.operatorKeyword, tags.controlKeyword], color: 'var(--code-keyword)' },
  { tag: [tags.comment], color: 'var(--text-2)', fontStyle: 'italic' },
  { tag: [tags.function(tags.variableName), tags.function(tags.propertyName)], color: 'var(--code-call)' },
]);

const THEME = EditorView.theme({
  '&': { color: 'var(--text)', backgroundColor: 'transparent', fontSize: '13px', height: '100%', maxHeight: 'inherit' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '20px', overflow: 'auto' },
  '.cm-content': { caretColor: 'var(--text)', padding: '8px 0' },
  '.cm-gutters': { backgroundColor: 'transparent', color: 'var(--text-2)', border: 'none', paddingLeft: '4px' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'var(--hover)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'var(--selection)' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '.cm-matchingBracket': { backgroundColor: 'var(--selection) !important' },
  '.cm-panels': { backgroundColor: 'var(--surface-2)', color: 'var(--text)' },
  '.cm-tooltip': { backgroundColor: 'var(--surface)', border: '1px solid var(--line-strong)', color: 'var(--text)' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--accent)', color: 'var(--on-accent)' },
  '.cm-foldPlaceholder': { backgroundColor: 'var(--surface-2)', border: '1px solid var(--line)', color: 'var(--text-2)' },
  '.cm-button, .cm-textfield': { backgroundColor: 'var(--surface)', backgroundImage: 'none', border: '1px solid var(--line-strong)', color: 'var(--text)', borderRadius: '4px' },
  '.cm-searchMatch': { backgroundColor: 'var(--selection)' },
});

/** Texts above this length are edited without line wrapping, highlighted matches and linting, because these features process the whole text. */
const LARGE_CHARS = 1_000_000;

export function create(host: HTMLElement, options: EditorOptions): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: 'open' });
  const isLarge = options.text.length > LARGE_CHARS;
  let lastText = options.text;
  const view = new EditorView({
    root,
    state: EditorState.create({ doc: options.text, extensions: [...extensions(options, isLarge), EditorView.updateListener.of((update) => {
      if (!update.docChanged) return;
      const text = update.state.doc.toString();
      // `set` caused this update.
      if (text === lastText) return;
      lastText = text;
      options.changed(text);
    })] }),
  });
  root.append(view.dom);
  return {
    set: (text) => {
      if (text === lastText) return;
      const old = lastText;
      lastText = text;
      view.dispatch({ changes: change(old, text) });
    },
    focus: () => view.focus(),
    destroy: () => view.destroy(),
  };
}

/** Returns the smallest change between two texts, so that cursor and selection outside of it are kept. */
function change(old: string, text: string): { from: number; to: number; insert: string } {
  const shorter = Math.min(old.length, text.length);
  let from = 0;
  while (from < shorter && old[from] === text[from]) from += 1;
  let end = 0;
  while (end < shorter - from && old[old.length - 1 - end] === text[text.length - 1 - end]) end += 1;
  return { from, to: old.length - end, insert: text.slice(from, text.length - end) };
}

function extensions(options: EditorOptions, isLarge: boolean): Extension[] {
  const language = options.language === 'json' ? [json()] : options.language === 'javascript' ? [javascript()] : [];
  const problems = (view: EditorView) =>
    options.problems(view.state.doc.toString()).map((problem) => ({ ...problem, severity: 'error' as const, to: Math.min(Math.max(problem.to, problem.from), view.state.doc.length) }));
  const words = (context: CompletionContext) => {
    const word = context.matchBefore(/[\w$.]+/);
    if (!word && !context.explicit) return null;
    return { from: word?.from ?? context.pos, options: options.complete().map((label) => ({ label })) };
  };
  return [
    lineNumbers(), highlightSpecialChars(), history(), foldGutter(), drawSelection(), indentOnInput(), bracketMatching(), closeBrackets(),
    search({ top: true }), indentUnit.of('  '), EditorState.tabSize.of(2), THEME, syntaxHighlighting(COLOURS),
    EditorView.contentAttributes.of({ 'aria-label': options.label }),
    ...language,
    isLarge ? [] : [highlightActiveLine(), highlightSelectionMatches(), EditorView.lineWrapping],
    options.readOnly ? [EditorState.readOnly.of(true)] : [lintGutter(), isLarge ? [] : linter(problems, { delay: 250 }), autocompletion({ override: [words] })],
    keymap.of([
      { key: 'Mod-s', run: () => { options.save(); return true; }, preventDefault: true },
      { key: 'Mod-Enter', run: () => { options.save(); return true; } },
      ...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...completionKeymap, ...lintKeymap, indentWithTab,
    ]),
  ];
}
