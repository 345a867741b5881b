/** The frame of all pages: navigation, breadcrumbs, command palette and session. The address determines the page. */
import { Component, type ComponentChildren, type ComponentType } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { acting, stopActing } from './api/acting.ts';
import { onUnauthorized } from './api/http.ts';
import { server } from './api/servers.ts';
import { checkSession, expired, isAdmin, isParty, loginOpen, logout, permittedServers, refresh, sessionState } from './api/session.ts';
import { Login, LoginDialog } from './pages/login.tsx';
import { go, goTo, href, hrefOf, route, useRoute, type Route } from './router.ts';
import { titleOf } from './titles.ts';
import { Icon, Logo, type IconName } from './ui/icons.tsx';
import { Button, Link, Problem, Skeleton, Toast, showToast } from './ui/kit.tsx';
import { Menu } from './ui/menu.tsx';
import { Palette, paletteOpen } from './ui/palette.tsx';
import { useSignal } from './ui/signal.ts';
import { isDark, onTheme, setTheme, theme } from './ui/theme.ts';

type Loader = () => Promise<ComponentType>;
interface NavigationItem {
  text: string;
  icon: IconName;
  page: string;
  admin: boolean;
}

const NAVIGATION: NavigationItem[] = [
  { text: 'Databases', icon: 'database', page: 'databases', admin: false },
  { text: 'Dashboard', icon: 'dashboard', page: 'dashboard', admin: true },
  { text: 'Activity', icon: 'activity', page: 'activity', admin: true },
  { text: 'Replication', icon: 'replicate', page: 'replication', admin: true },
  { text: 'Users', icon: 'users', page: 'users', admin: true },
  { text: 'Configuration', icon: 'gear', page: 'config', admin: true },
  { text: 'Server', icon: 'server', page: 'server', admin: true },
  { text: 'Logs', icon: 'logs', page: 'logs', admin: true },
  { text: 'Backups', icon: 'history', page: 'backups', admin: true },
];

const LOADERS: Record<string, Loader> = {
  databases: () => import('./pages/databases.tsx').then((module) => module.Databases),
  db: () => import('./pages/db.tsx').then((module) => module.Database),
  dashboard: () => import('./pages/dashboard.tsx').then((module) => module.Dashboard),
  activity: () => import('./pages/activity.tsx').then((module) => module.Activity),
  replication: () => import('./pages/replication.tsx').then((module) => module.Replication),
  users: () => import('./pages/users.tsx').then((module) => module.Users),
  config: () => import('./pages/config.tsx').then((module) => module.Config),
  server: () => import('./pages/server.tsx').then((module) => module.Server),
  logs: () => import('./pages/logs.tsx').then((module) => module.Logs),
  backups: () => import('./pages/backups.tsx').then((module) => module.BackupsPage),
  servers: () => import('./pages/servers.tsx').then((module) => module.Servers),
  slow: () => import('./pages/logs.tsx').then((module) => module.Slow),
  account: () => import('./pages/account.tsx').then((module) => module.Account),
  setup: () => import('./pages/setup.tsx').then((module) => module.Setup),
};

/** Loads the code of the page concurrently with the requests of the session. */
export function preload(): void {
  const [section = 'databases', , part] = route().path;
  const loading = section === 'db' ? preloadPart(part) : LOADERS[section]?.();
  // Rendering the page reports the error.
  loading?.catch(() => {});
}

async function preloadPart(part: string | undefined): Promise<unknown> {
  const pages = await import('./pages/db.tsx');
  return pages.PAGES[part ?? 'docs']?.();
}

export function App() {
  const { ready, closed, unknown } = useSignal(sessionState);
  const [error, setError] = useState<Error>();
  const load = () => {
    setError(undefined);
    refresh().catch(setError);
  };
  useEffect(() => {
    load();
    onUnauthorized((isWrite) => void checkSession(isWrite));
    const onKeyDown = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
        event.preventDefault();
        paletteOpen.value = !paletteOpen.value;
      }
    };
    addEventListener('keydown', onKeyDown);
    return () => removeEventListener('keydown', onKeyDown);
  }, []);
  const at = useRoute();
  const { path, query } = at;
  // Servers redirect browsers to session.html with the return address in the query.
  const isLogout = path[0] === 'logout';
  const isLogin = closed || path[0] === 'login' || isLogout || wantsLogin();
  const title = isLogin ? 'Log in' : titleOf(at);
  useEffect(() => { if (isLogout && ready) void logOut(); }, [isLogout, ready]);
  useEffect(() => { document.title = `${title} – ${server || 'Settee'}`; }, [title]);
  if (error) return <main class="alone"><div class="card"><h1>{server === '' ? 'The server does not answer' : <>{server} does not answer</>}</h1><Problem error={error} again={load} />{server !== '' && <Home />}</div></main>;
  if (unknown) return <main class="alone"><div class="card"><h1>{server} is not in the list</h1><p>An administrator of {location.host} adds servers on the page Servers of this console.</p><Home /></div></main>;
  if (!ready) return <main class="alone"><div class="card"><Skeleton lines={4} /></div></main>;
  if (isLogin) return <><Login back={query.get('back')} /><Toast /></>;
  return <Shell />;
}

async function logOut(): Promise<void> {
  await logout();
  showToast('You are logged out.');
  go(['login']);
}

/** Link to the list of servers on the server of the console. */
function Home() {
  return <Button icon="server" onClick={() => goTo('', ['servers'])}>Servers of {location.host}</Button>;
}

function wantsLogin(): boolean {
  return location.pathname.endsWith('/session.html') && sessionState.value.session.name === null;
}

function Shell() {
  const at = useRoute();
  const [menu, setMenu] = useState(false);
  const page = useRef<HTMLElement>(null);
  const section = at.path[0] ?? 'databases';
  const key = at.path.slice(0, section === 'db' ? 4 : 2).join('/');
  const isFirst = useRef(true);
  useEffect(() => {
    setMenu(false);
    // Keyboard users continue at the start of the new page.
    if (!isFirst.current && !(document.activeElement instanceof HTMLInputElement)) page.current?.focus({ preventScroll: true });
    isFirst.current = false;
    page.current?.scrollTo(0, 0);
  }, [key]);
  return (
    <div class="shell">
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); page.current?.focus(); }}>Skip to content</a>
      {menu && <button type="button" class="veil" aria-label="Close the menu" onClick={() => setMenu(false)} />}
      <Sidebar section={section} open={menu} />
      <div class="main">
        <ServerTabs />
        <TopBar at={at} onMenu={() => setMenu(!menu)} />
        {acting !== '' && <div class="acting"><p>This tab sends its requests as <strong>{acting}</strong>.</p><Button onClick={stopActing}>Stop</Button></div>}
        <main class="page" ref={page} id="content" tabIndex={-1}>
          <ErrorBoundary key={key}><Content section={section} /></ErrorBoundary>
        </main>
      </div>
      <Palette />
      <LoginDialog />
      <Toast />
    </div>
  );
}

function Sidebar({ section, open }: { section: string; open: boolean }) {
  const { welcome } = useSignal(sessionState);
  return (
    <aside class={`side ${open ? 'open' : ''}`} aria-label="Console">
      <Link class="brand" to={['databases']}><Logo /><span class="words">{welcome?.isSettee === false ? welcome.vendor.replace(/^The /, '') : 'Settee'}</span></Link>
      <nav aria-label="Main">
        {NAVIGATION.filter(({ admin }) => !admin || isAdmin()).map(({ text, icon, page }) => (
          <Link key={page} to={[page]} title={text} aria-current={section === page || (page === 'databases' && section === 'db') || (page === 'logs' && section === 'slow') || (page === 'server' && section === 'servers') ? 'page' : undefined}><Icon name={icon} /><span class="words">{text}</span></Link>
        ))}
      </nav>
      <p class="side-foot">{welcome ? `${welcome.vendor.replace(/^The /, '')} ${welcome.version}` : ''}</p>
    </aside>
  );
}

/** A tab for each server. A click opens the page that was last open on the server, and another tab of the browser is independent. */
function ServerTabs() {
  const names = useSignal(permittedServers);
  const current = useRef<HTMLAnchorElement>(null);
  useEffect(() => current.current?.scrollIntoView({ block: 'nearest', inline: 'nearest' }), [names.length]);
  if (names.length === 0 && server === '') return null;
  return (
    <nav class="servers" aria-label="Servers">
      {['', ...names].map((name) => (name === server
        ? <a key={name} ref={current} href={location.hash} aria-current="page"><Icon name="server" size={14} />{name || location.host}</a>
        : <a key={name} href={hrefOf(name)}><Icon name="server" size={14} />{name || location.host}</a>))}
      <a href={href(['servers'], {}, '')} aria-label="Servers …" title="Servers …"><Icon name="gear" size={14} /></a>
    </nav>
  );
}

function TopBar({ at, onMenu }: { at: Route; onMenu: () => void }) {
  const { session } = useSignal(sessionState);
  const hasExpired = useSignal(expired);
  return (
    <header class="top">
      <div class="menu-button"><Button kind="quiet" icon="menu" label="Menu" onClick={onMenu} /></div>
      <Breadcrumbs at={at} />
      <button type="button" class="finder" onClick={() => { paletteOpen.value = true; }}>
        <Icon name="search" /><span class="words">Go to …</span><span class="unseen">a page, database or document</span><kbd aria-hidden="true">Ctrl K</kbd>
      </button>
      <ThemeButton />
      {session.name === null || hasExpired
        ? <Button kind={isParty() ? 'quiet' : 'primary'} icon={isParty() ? 'lock' : 'user'} onClick={() => { if (isParty()) go(['setup']); else loginOpen.value = true; }}>{isParty() ? 'Set up' : 'Log in'}</Button>
        : <Menu label={`Session of ${session.name}`} icon="user" items={[
            { text: 'Your account', icon: 'user', act: () => go(['account']) },
            { text: 'Log out', icon: 'lock', act: () => void logOut() },
          ]} said={<>Logged in as <strong>{session.name}</strong>{session.roles.length > 0 && <><br />{session.roles.join(', ')}</>}</>} />}
    </header>
  );
}

function ThemeButton() {
  const [, bump] = useState(0);
  useEffect(() => onTheme(() => bump((n) => n + 1)), []);
  const dark = isDark();
  const chosen = theme();
  return <Button kind="quiet" icon={dark ? 'sun' : 'moon'} label={`${dark ? 'Light' : 'Dark'} colours${chosen === 'system' ? ' (currently as the system)' : ''}`} onClick={() => setTheme(dark ? 'light' : 'dark')} />;
}

function Breadcrumbs({ at }: { at: Route }) {
  const [section = 'databases', name, sub, third] = at.path;
  const title = NAVIGATION.find(({ page }) => page === section)?.text ?? { setup: 'Set up', slow: 'Slow requests', account: 'Account', servers: 'Servers' }[section];
  const steps: [ComponentChildren, string[]][] = section === 'db' ? [['Databases', ['databases']], [name, ['db', name ?? '']]] : [[title ?? 'Not found', [section]]];
  if (section === 'db' && sub === 'doc' && third) steps.push([third, at.path]);
  else if (section === 'db' && (sub === 'design' || sub === 'view') && third) {
    steps.push([`_design/${third}`, ['db', name ?? '', 'design', third]]);
    if (at.path[4]) steps.push([at.path[4], at.path]);
  }
  return (
    <nav class="crumbs" aria-label="Breadcrumb">
      <ol>
        {steps.map(([text, path], index) => (
          <li key={index}>{index > 0 && <Icon name="right" size={12} />}{index < steps.length - 1 ? <Link class="cut" to={path}>{text}</Link> : <span class="cut" aria-current="page">{text}</span>}</li>
        ))}
      </ol>
    </nav>
  );
}

const loaded = new Map<string, ComponentType>();

function Content({ section }: { section: string }) {
  const [, bump] = useState(0);
  const [error, setError] = useState<Error>();
  const loadedPage = loaded.get(section);
  useEffect(() => {
    setError(undefined);
    if (loaded.has(section)) return;
    LOADERS[section]?.().then((page) => {
      loaded.set(section, page);
      bump((n) => n + 1);
    }).catch(setError);
  }, [section]);
  if (error) return <Problem error={error} again={() => location.reload()} />;
  if (loadedPage) {
    const Page = loadedPage;
    return <Page />;
  }
  if (!LOADERS[section]) return <div class="stack"><h1>This page does not exist</h1><p><Link to={['databases']}>To the databases</Link></p></div>;
  return <Skeleton />;
}

/** Error boundary, so that the frame remains usable if a page throws. */
class ErrorBoundary extends Component<{ children: ComponentChildren }, { error?: Error }> {
  override state: { error?: Error } = {};
  static override getDerivedStateFromError(error: Error) {
    return { error };
  }
  override render() {
    return this.state.error ? <Problem error={this.state.error} again={() => this.setState({})} /> : this.props.children;
  }
}
