import { render } from 'preact';
import './styles/tokens.css';
import './styles/base.css';
import './styles/layout.css';
import './styles/parts.css';
import { App, preload } from './app.tsx';
import { startTheme } from './ui/theme.ts';

startTheme();
preload();
const container = document.getElementById('app');
// Replaces the skeleton of index.html.
if (container) {
  container.replaceChildren();
  render(<App />, container);
}
