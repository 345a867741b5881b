/** Translation of Fauxton addresses, which bookmarks and documentation contain, to pages of this console. */

export interface Target {
  path: string[];
  query?: Record<string, string>;
}

/** Names of list parameters in Fauxton and in this console. The values are JSON in both. */
const LIST_PARAMS: Record<string, string> = { startkey: 'start', start_key: 'start', endkey: 'end', end_key: 'end', keys: 'keys' };

/** Returns the page for an address of Fauxton, or undefined for other addresses. */
export function fromFauxton(path: string[], query: URLSearchParams): Target | undefined {
  const [first = '', second, third] = path;
  switch (first) {
    case 'index.html':
    case '_all_dbs': return { path: ['databases'] };
    case 'activetasks': return { path: ['activity'] };
    case '_config': return { path: third === 'cors' ? ['config', 'cors'] : ['config'] };
    case 'cors': return { path: ['config', 'cors'] };
    case 'setup': return second === undefined ? undefined : { path: ['setup'] };
    case 'cluster':
    case 'documentation':
    case 'news':
    case 'verifyinstall': return { path: ['server'] };
    case 'changePassword': return { path: ['account'] };
    case 'createAdmin':
    case 'addAdmin': return { path: ['users'] };
    case 'replication': return replication(second, third);
    case 'partition': return second === undefined || third === undefined ? { path: ['databases'] } : database(second, ['_partition', ...path.slice(2)], query);
    case 'database':
    case '_all_docs': return second === undefined ? { path: ['databases'] } : database(second, path.slice(2), query);
    default: return undefined;
  }
}

function replication(kind: string | undefined, name: string | undefined): Target | undefined {
  switch (kind) {
    case '_create': return { path: ['replication', 'new'], ...(name === undefined ? {} : { query: { source: name } }) };
    case '_replicate': return { path: ['replication'], query: { show: 'jobs' } };
    case 'id': return name === undefined ? { path: ['replication'] } : { path: ['db', '_replicator', 'doc', name] };
    default: return undefined;
  }
}

/** `rest` is the path after the name of the database. */
function database(db: string, rest: string[], query: URLSearchParams): Target {
  if (rest[0] === '_partition' && rest[1] !== undefined) {
    const target = database(db, rest.slice(2), query);
    return { ...target, query: { ...target.query, partition: rest[1] } };
  }
  const to = (...path: string[]): Target => ({ path: ['db', db, ...path] });
  const [kind, name] = rest;
  switch (kind) {
    case undefined: return to();
    case '_all_docs': return { ...to(), query: listParams(query) };
    case '_find': return to('query');
    case '_index': return { ...to('query'), query: { do: 'index' } };
    case '_changes':
    case 'changes': return to('changes');
    case 'permissions': return to('settings');
    case '_new':
    case 'new': return newDocument(db, query.get('partitionKey'));
    case 'new_view': return newFunction(db, name, 'views');
    case 'new_search': return newFunction(db, name, 'nouveau');
    case '_design': return name === undefined ? to('designs') : design(db, name, rest.slice(2), query);
    case '_local': return to('doc', `_local/${name ?? ''}`);
    default: return documentPage(db, kind, name);
  }
}

function newDocument(db: string, partition: string | null): Target {
  return { path: ['db', db, 'new'], ...(partition === null ? {} : { query: { partition } }) };
}

function documentPage(db: string, id: string, tab: string | undefined): Target {
  return { path: ['db', db, 'doc', id], ...(tab === 'conflicts' ? { query: { tab } } : {}) };
}

function newFunction(db: string, ddoc: string | undefined, kind: string): Target {
  const name = ddoc?.replace(/^_design\//, '');
  if (name === undefined) return { path: ['db', db, 'designs'], query: { do: 'create', kind } };
  return { path: ['db', db, 'design', name], query: { part: 'new', kind } };
}

function design(db: string, ddoc: string, [kind, name, action]: string[], query: URLSearchParams): Target {
  const page = { path: ['db', db, 'design', ddoc] };
  if (kind === 'conflicts') return { path: ['db', db, 'doc', `_design/${ddoc}`], query: { tab: kind } };
  if (kind === '_info') return page;
  if (name === undefined) return { path: ['db', db, 'doc', `_design/${ddoc}`] };
  if (kind === '_view') return action === 'edit' ? { ...page, query: { part: `views/${name}` } } : { path: ['db', db, 'view', ddoc, name], query: listParams(query) };
  if (kind === '_search' || kind === '_indexes') return search(db, ddoc, name, { action, part: 'indexes', kind: '_search' }, query);
  if (kind === '_nouveau') return search(db, ddoc, name, { action, part: 'nouveau', kind: '_nouveau' }, query);
  return page;
}

function search(db: string, ddoc: string, name: string, as: { action: string | undefined; part: string; kind: string }, query: URLSearchParams): Target {
  if (as.action === 'edit') return { path: ['db', db, 'design', ddoc], query: { part: `${as.part}/${name}` } };
  const q = query.get('q') ?? query.get('query');
  return { path: ['db', db, 'search'], query: { index: `${ddoc}/${as.kind}/${name}`, ...(q === null ? {} : { q }) } };
}

function listParams(query: URLSearchParams): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [name, value] of query) {
    const here = LIST_PARAMS[name];
    if (here !== undefined) found[here] = value;
  }
  if (query.get('descending') === 'true') found['order'] = 'down';
  return found;
}
