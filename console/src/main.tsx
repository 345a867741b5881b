import { render } from 'preact';
import './styles/tokens.css';
import './styles/base.css';
import './styles/layout.css';
import './styles/parts.css';
import { App, preload } from './app.tsx';
import { begin } from './ui/theme.ts';

begin();
preload();
const place = document.getElementById('app');
// Replaces the skeleton of index.html.
if (place) {
  place.replaceChildren();
  render(<App />, place);
}
