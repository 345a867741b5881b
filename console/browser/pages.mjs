// Every page of the console: name, address, and a selector of its loaded content.
const QUERY = encodeURIComponent('{\n  "selector": {\n    "state": "paid",\n    "total": { "$gt": 500 }\n  },\n  "limit": 25\n}');

export function pages(db) {
  const dbPath = `#/db/${db}`;
  return [
    ['databases', '#/databases', 'table'],
    ['documents', dbPath, '.grid-row.body'],
    ['documents-sorted', `${dbPath}?by=state`, '.grid-row.body'],
    ['documents-json', `${dbPath}?view=json`, '.doc-card'],
    ['document', `${dbPath}/doc/exact`, '.editor-host .cm-content'],
    ['conflicts', `${dbPath}/doc/torn?tab=conflicts`, '.diff'],
    ['revisions', `${dbPath}/doc/torn?tab=revisions`, '.revs'],
    ['attachments', `${dbPath}/doc/files?tab=attachments`, 'table'],
    ['upload', `${dbPath}/upload`, '.drop'],
    ['designs', `${dbPath}/designs`, 'table'],
    ['design', `${dbPath}/design/orders?part=views%2Fby_city`, '.editor-host .cm-content'],
    ['view', `${dbPath}/view/orders/by_city`, '.grid-row.body'],
    ['view-chart', `${dbPath}/view/orders/by_month?show=chart`, '.plot canvas'],
    ['query', `${dbPath}/query?q=${QUERY}`, '.card table'],
    ['plan', `${dbPath}/query?q=${QUERY}&show=plan`, '.plan'],
    ['search', `${dbPath}/search?q=${encodeURIComponent('city:lima AND total:[500 TO *]')}`, '.card table'],
    ['query-index', `${dbPath}/query?do=index`, 'dialog .cm-content'],
    ['queries', `${dbPath}/query?do=queries`, 'dialog .query-list li'],
    ['search-index', `${dbPath}/design/orders?part=nouveau%2Forders`, '.editor-host .cm-content'],
    ['schema', `${dbPath}/schema`, 'table'],
    ['changes', `${dbPath}/changes`, 'table'],
    ['playground', `${dbPath}/playground?ddoc=orders&name=by_city`, '.stat'],
    ['settings', `${dbPath}/settings`, 'dl.facts'],
    ['dashboard', '#/dashboard', '.plot canvas'],
    ['activity', '#/activity', '.card'],
    ['replication', '#/replication', '.card'],
    ['replication-new', '#/replication/new', 'form'],
    ['users', '#/users', '.card'],
    ['config', '#/config?section=log', '.key-item'],
    ['cors', '#/config/cors', 'form'],
    ['server', '#/server', 'dl.facts'],
    ['logs', '#/logs', '.log div'],
    ['slow', '#/slow', '.card, .empty'],
    ['backups', '#/backups', 'main .card'],
    ['servers', '#/servers', '.tag.good'],
    ['login', '#/login', 'form'],
  ];
}
