// The console. A page is a function from the parts of `location.hash` to the content of <main>. It knows the server by the
// public HTTP interface only. What the server says becomes text and never markup; JSON is shown as it was sent, because
// parsing it would round its numbers.
'use strict';

const ROWS = 50;
const POLL_MS = 2000;
const main = document.getElementById('main');
const say = (text) => { document.getElementById('status').textContent = text; };

// What the server is asked.

async function ask(method, path, body) {
  const began = performance.now();
  // Without the second header a browser may ask for a password itself.
  const headers = { Accept: 'application/json', 'X-CouchDB-WWW-Authenticate': 'Cookie' };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const response = await fetch(`../${path}`, { method, headers, body });
  const text = await response.text();
  if (response.ok) return { text, ms: performance.now() - began };
  let refusal = {};
  try { refusal = JSON.parse(text); } catch { /* A proxy may answer in its own way. */ }
  throw new Error(`${response.status} ${refusal.error ?? response.statusText}: ${refusal.reason ?? ''}`);
}

const get = async (path) => JSON.parse((await ask('GET', path)).text);
const enc = encodeURIComponent;
const key = (text) => enc(JSON.stringify(text));

function idPath(id) {
  const prefix = id.match(/^_(design|local)\//)?.[0] ?? '';
  return prefix + enc(id.slice(prefix.length));
}

// JSON as text.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

function indent(text) {
  let out = '', depth = 0, before = '';
  for (const token of text.match(TOKEN) ?? []) {
    const closes = token === '}' || token === ']', opened = before === '{' || before === '[';
    if (closes) depth -= 1;
    if (opened !== closes || before === ',') out += `\n${'  '.repeat(depth)}`;
    out += token === ':' ? ': ' : token;
    if (token === '{' || token === '[') depth += 1;
    before = token;
  }
  return out;
}

// The members of an object, or the elements of an array (without names), as texts.
function parts(text) {
  const found = [];
  let depth = 0, start = 0, name;
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    const closes = token === '}' || token === ']';
    if (depth === 1 && token === ':') {
      name = JSON.parse(text.slice(start, index));
      start = index + 1;
    } else if (depth === 1 && (closes || token === ',')) {
      const part = text.slice(start, index).trim();
      if (part) found.push([name, part]);
      start = index + 1;
    }
    if (closes) depth -= 1;
    if (token === '{' || token === '[') {
      depth += 1;
      if (depth === 1) start = index + 1;
    }
  }
  return found;
}

// What is shown.

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat().filter((child) => child !== undefined));
  return node;
}

const heading = (text) => el('h1', { tabindex: -1 }, text);
const link = (text, ...path) => el('a', { href: `#/${path.map(enc).join('/')}` }, text);
const number = (count) => el('td', { class: 'number' }, (count ?? 0).toLocaleString());
const size = (bytes) => el('td', { class: 'number' }, bytes < 1 << 20 ? `${Math.ceil((bytes ?? 0) / 1024)} KiB` : `${(bytes / 2 ** 20).toFixed(1)} MiB`);
const field = (label, attributes) => el('label', null, `${label} `, el('input', attributes));

function table(caption, heads, rows) {
  if (rows.length === 0) return el('p', null, `${caption}: none.`);
  const head = el('tr', null, heads.map((text) => el('th', { scope: 'col' }, text)));
  const body = rows.map((cells) => el('tr', null, cells.map((cell) => cell.tagName === 'TD' ? cell : el('td', null, cell))));
  return el('table', { 'aria-label': caption }, el('thead', null, head), el('tbody', null, body));
}

// A form whose fields go to `act` by their names. What goes wrong is said.
function form(act, ...children) {
  const onsubmit = (event) => {
    event.preventDefault();
    attempt(() => act(Object.fromEntries(new FormData(event.target))));
  };
  return el('form', { class: 'row', onsubmit }, ...children);
}

async function attempt(act) {
  say('');
  try { await act(); } catch (error) { say(error.message); }
}

function go(...path) {
  const hash = `#/${path.map(enc).join('/')}`;
  if (location.hash === hash) show(); else location.hash = hash;
}

// The pages.

async function databases([from]) {
  const start = from === undefined ? '' : `&start_key=${key(from)}`;
  const create = async ({ name }) => { await ask('PUT', enc(name)); go('db', name); };
  const content = [
    heading('Databases'),
    form(({ name }) => go('db', name), field('Open a database', { name: 'name', required: true }), el('button', null, 'Open')),
    form(create, field('Create a database', { name: 'name', required: true }), el('button', null, 'Create')),
  ];
  try {
    const found = await get(`_dbs_info?limit=${ROWS + 1}${start}`);
    const rows = found.slice(0, ROWS).map(({ key: name, info }) => [
      link(name, 'db', name), number(info?.doc_count), size(info?.sizes.active), size(info?.sizes.file), link(`Delete ${name}`, 'delete', name),
    ]);
    content.push(table('Databases', ['Name', 'Documents', 'Data', 'On disk', ''], rows));
    if (found.length > ROWS) content.push(el('p', null, link('Next', 'databases', found[ROWS].key)));
  } catch (error) {
    content.push(el('p', null, `The list is not shown: ${error.message}`));
  }
  return content;
}

async function database([name, from]) {
  const path = enc(name);
  const start = from === undefined ? '' : `&start_key=${key(from)}`;
  const info = await get(path);
  const found = (await get(`${path}/_all_docs?limit=${ROWS + 1}${start}`)).rows;
  const rows = found.slice(0, ROWS).map((row) => [link(row.id, 'doc', name, row.id), el('code', null, row.value?.rev ?? '')]);
  const content = [
    heading(name),
    el('p', null, `${info.doc_count.toLocaleString()} documents, ${info.doc_del_count.toLocaleString()} deleted. `, link('Delete this database', 'delete', name)),
    form(({ id }) => go('doc', name, id), field('Open a document', { name: 'id', required: true }), el('button', null, 'Open'), link('New document', 'new', name)),
    table('Documents', ['Id', 'Revision'], rows),
  ];
  if (from !== undefined) content.push(el('p', null, link('From the first', 'db', name)));
  if (found.length > ROWS) content.push(el('p', null, link('Next', 'db', name, found[ROWS].id)));
  const designs = (await get(`${path}/_design_docs?include_docs=true`)).rows;
  const views = designs.flatMap(({ doc }) => Object.keys(doc?.language === 'query' ? {} : doc?.views ?? {}).map((view) => {
    const ddoc = doc._id.slice('_design/'.length);
    return [link(`${ddoc}/${view}`, 'view', name, ddoc, view), typeof doc.views[view].reduce === 'string' ? 'map and reduce' : 'map'];
  }));
  content.push(el('h2', null, 'Views'), table('Views', ['View', 'Has'], views));
  return content;
}

async function doc([name, id]) {
  const path = `${enc(name)}/${idPath(id)}`;
  const { text } = await ask('GET', path);
  const save = async ({ text: edited }) => {
    const { rev } = JSON.parse((await ask('PUT', path, edited)).text);
    await show();
    say(`Saved as ${rev}.`);
  };
  const remove = async () => {
    if (!confirm(`Delete ${id}?`)) return;
    await ask('DELETE', `${path}?rev=${enc(JSON.parse(text)._rev)}`);
    go('db', name);
  };
  return [
    heading(id),
    el('p', null, 'A document of ', link(name, 'db', name)),
    form(save, el('textarea', { name: 'text', rows: 24, spellcheck: 'false', 'aria-label': `JSON of ${id}` }, indent(text)),
      el('button', null, 'Save'), el('button', { type: 'button', onclick: () => attempt(remove) }, 'Delete')),
  ];
}

async function newDoc([name]) {
  const save = async ({ text }) => go('doc', name, JSON.parse((await ask('POST', enc(name), text)).text).id);
  return [
    heading('New document'),
    el('p', null, 'In ', link(name, 'db', name), '. Without ', el('code', null, '_id'), ' the server makes one.'),
    form(save, el('textarea', { name: 'text', rows: 24, spellcheck: 'false', 'aria-label': 'JSON of the new document' }, '{\n  \n}'), el('button', null, 'Save')),
  ];
}

const SHAPES = { rows: 'reduce=false', groups: 'group=true', 'groups of level 1': 'group_level=1', 'groups of level 2': 'group_level=2', 'one value': '' };

async function view([name, ddoc, viewName, options]) {
  const design = await get(`${enc(name)}/_design/${enc(ddoc)}`);
  const reduces = design.views?.[viewName]?.reduce !== undefined;
  const wanted = { shape: 'rows', start: '', end: '', ...JSON.parse(options ?? '{}') };
  const query = [`limit=${ROWS}`, reduces && SHAPES[wanted.shape], wanted.start && `start_key=${enc(wanted.start)}`, wanted.end && `end_key=${enc(wanted.end)}`];
  const shapes = Object.keys(SHAPES).map((shape) => el('option', { selected: shape === wanted.shape }, shape));
  const content = [
    heading(`${ddoc}/${viewName}`),
    el('p', null, 'A view of ', link(name, 'db', name), ', defined in ', link(`_design/${ddoc}`, 'doc', name, `_design/${ddoc}`)),
    form((fields) => go('view', name, ddoc, viewName, JSON.stringify(fields)),
      reduces ? el('label', null, 'Show ', el('select', { name: 'shape' }, shapes)) : undefined,
      field('From key (JSON)', { name: 'start', value: wanted.start }), field('To key', { name: 'end', value: wanted.end }), el('button', null, 'Query')),
  ];
  try {
    const { text, ms } = await ask('GET', `${enc(name)}/_design/${enc(ddoc)}/_view/${enc(viewName)}?${query.filter(Boolean).join('&')}`);
    const answer = Object.fromEntries(parts(text));
    const rows = parts(answer.rows).map(([, row]) => Object.fromEntries(parts(row)));
    const total = answer.total_rows === undefined ? '' : ` of ${answer.total_rows}`;
    content.push(el('p', null, `${rows.length}${total} rows in ${ms.toFixed(1)} ms.`));
    content.push(table('Rows', ['Key', 'Value', 'Document'], rows.map(({ id, key: rowKey, value, error }) => {
      const docId = id === undefined ? undefined : JSON.parse(id);
      return [el('code', null, rowKey), el('code', null, value ?? error), docId === undefined ? '' : link(docId, 'doc', name, docId)];
    })));
  } catch (error) {
    content.push(el('p', null, error.message));
  }
  return content;
}

function remove([name]) {
  const button = el('button', { disabled: true }, 'Delete for ever');
  const oninput = (event) => { button.disabled = event.target.value !== name; };
  const drop = async () => { await ask('DELETE', enc(name)); go(); };
  return [
    heading(`Delete ${name}?`),
    el('p', null, 'All its documents go with it. ', link('Keep it', 'db', name)),
    form(drop, field(`Type ${name} to confirm`, { name: 'name', autocomplete: 'off', oninput }), button),
  ];
}

async function tasks() {
  const rows = (await get('_active_tasks')).map((task) => {
    const share = task.progress === undefined ? '' : el('progress', { max: 100, value: task.progress, 'aria-label': 'progress' }, `${task.progress} %`);
    const what = task.database ?? `${task.source} to ${task.target}`;
    return [task.type, what, task.design_document ?? '', share, number(task.changes_done ?? task.docs_written), new Date(task.started_on * 1000).toLocaleString()];
  });
  return [heading('Active tasks'), table('Active tasks', ['Type', 'Database', 'Design document', 'Progress', 'Changes', 'Since'], rows)];
}

async function jobs() {
  const { jobs: all, total_rows: total } = await get(`_scheduler/jobs?limit=${ROWS}`);
  const rows = all.map((job) => [
    job.doc_id ? link(job.doc_id, 'doc', job.database, job.doc_id) : job.id, job.source, job.target, job.history[0]?.type ?? '', number(job.info?.docs_written),
  ]);
  return [heading('Replications'), el('p', null, `${total} jobs.`), table('Replications', ['Job', 'Source', 'Target', 'Last event', 'Written'], rows)];
}

const PAGES = new Map(Object.entries({ '': databases, databases, db: database, doc, new: newDoc, view, delete: remove, tasks, jobs }));
const POLLED = [tasks, jobs];

// Going from page to page.

let visit = 0;
let timer;

async function content() {
  let page;
  try {
    const [name, ...rest] = location.hash.replace(/^#\/?/, '').split('/').map(decodeURIComponent);
    page = PAGES.get(name) ?? databases;
    return [page, await page(rest)];
  } catch (error) {
    return [page, [heading('Not shown'), el('p', null, error.message)]];
  }
}

async function show() {
  clearTimeout(timer);
  say('');
  const mine = ++visit;
  const [page, nodes] = await content();
  if (mine !== visit) return;
  main.replaceChildren(...nodes);
  document.title = `${nodes[0].textContent} – Settee`;
  // On the first page whoever uses the keyboard begins at its top.
  if (mine > 1) nodes[0].focus();
  if (POLLED.includes(page)) timer = setTimeout(refresh, POLL_MS, mine);
}

async function refresh(mine) {
  const [, nodes] = document.hidden ? [] : await content();
  if (mine !== visit) return;
  // What did not change keeps the focus that it may have.
  if (nodes && main.textContent !== nodes.map((node) => node.textContent).join('')) main.replaceChildren(...nodes);
  timer = setTimeout(refresh, POLL_MS, mine);
}

// Signing in and out.

async function session() {
  // Where nothing goes without signing in, neither does this.
  const { userCtx, info } = await get('_session').catch(() => ({ userCtx: { name: null, roles: [] } }));
  const box = document.getElementById('session');
  const change = async (...request) => { await ask(...request); await session(); };
  const signIn = async ({ name, password }) => {
    await change('POST', '_session', JSON.stringify({ name, password }));
    const back = new URLSearchParams(location.search).get('return');
    const target = back && new URL(back, location.origin);
    if (target && target.origin === location.origin) location.assign(target); else await show();
  };
  const signOut = async () => { await change('DELETE', '_session'); await show(); };
  const actions = { 'Sign in': signIn, 'Sign out': signOut };
  box.onsubmit = (event) => {
    event.preventDefault();
    attempt(() => actions[box.querySelector('button').textContent](Object.fromEntries(new FormData(box))));
  };
  if (userCtx.name === null && userCtx.roles.includes('_admin')) {
    box.replaceChildren('There is no administrator yet: everybody may do everything.');
  } else if (userCtx.name === null) {
    const name = field('Name', { name: 'name', autocomplete: 'username', required: true });
    box.replaceChildren(name, field('Password', { name: 'password', type: 'password', autocomplete: 'current-password' }), el('button', null, 'Sign in'));
  } else {
    // What else the browser sends with each request cannot be taken back here.
    const out = info.authenticated === 'cookie' ? [el('button', null, 'Sign out')] : [];
    box.replaceChildren(`Signed in as ${userCtx.name}`, ...out);
  }
}

async function version() {
  const { version: couchdb, vendor } = await get('');
  document.getElementById('version').textContent = `${vendor.name} ${vendor.version}, speaks CouchDB ${couchdb}`;
}

async function begin() {
  addEventListener('hashchange', show);
  document.querySelector('.skip').addEventListener('click', (event) => {
    event.preventDefault();
    main.focus();
  });
  await session();
  await show();
  await attempt(version);
  const reason = new URLSearchParams(location.search).get('reason');
  if (reason) say(reason);
}

begin();
