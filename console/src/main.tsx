import { render } from 'preact';
import './styles/tokens.css';
import './styles/base.css';
import './styles/layout.css';
import './styles/parts.css';
import { App } from './app.tsx';
import { begin } from './ui/theme.ts';

begin();
const place = document.getElementById('app');
if (place) render(<App />, place);
