import { render } from 'preact';
import './styles/tokens.css';
import './styles/base.css';
import './styles/layout.css';
import './styles/parts.css';
import { loadDrafts } from './api/drafts.ts';
import { App } from './app.tsx';
import { begin } from './ui/theme.ts';

begin();
const place = document.getElementById('app');
/** A store that does not answer must not keep the console from being shown. */
const DRAFTS_MS = 1000;
void Promise.race([loadDrafts(), new Promise((resolve) => setTimeout(resolve, DRAFTS_MS))]).then(() => {
  if (place) render(<App />, place);
});
