/** Requests as code for other clients, for "copy as". */
import { isDropped, root } from './paths.ts';

export interface Shown {
  method: string;
  path: string;
  body?: string | undefined;
}

export type Client = 'curl' | 'PouchDB' | 'nano';
export const CLIENTS: Client[] = ['curl', 'PouchDB', 'nano'];

export function copyAs(client: Client, request: Shown, url: (path: string) => string = (path) => root() + path): string {
  if (client === 'curl') return curl(request, url);
  const { db, rest, params } = takeApart(request.path);
  if (db === '') return `// ${client} has no call for this.\n${curl(request, url)}`;
  return client === 'PouchDB' ? pouch(request, url(db), rest, params) : nano(request, url(''), db, rest, params);
}

/** Quotes a text for a POSIX shell, which interprets no character within single quotes. */
function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function curl({ method, path, body }: Shown, url: (path: string) => string): string {
  const verb = method === 'GET' ? '' : ` -X ${method}`;
  const data = body === undefined ? '' : ` \\\n  -H 'Content-Type: application/json' \\\n  -d ${quote(body)}`;
  const asIs = (path.split('?', 1)[0] ?? '').split('/').some((part) => part !== '' && isDropped(part)) ? ' --path-as-is' : '';
  return `curl${verb}${asIs} --user NAME ${quote(url(path))}${data}`;
}

interface Parts {
  db: string;
  rest: string[];
  params: string;
}

function takeApart(path: string): Parts {
  const mark = path.indexOf('?');
  const [db = '', ...rest] = (mark < 0 ? path : path.slice(0, mark)).split('/');
  const params: string[] = [];
  for (const [name, value] of new URLSearchParams(mark < 0 ? '' : path.slice(mark + 1))) {
    const plain = /^(?:true|false|-?\d+)$/.test(value) || /key(?:s|_end)?$|^(?:start|end)_?key$|^keys$/.test(name);
    params.push(`${name}: ${plain ? value : JSON.stringify(value)}`);
  }
  const isServers = db.startsWith('_') && !['_users', '_replicator', '_global_changes'].includes(db);
  return { db: isServers ? '' : db, rest: rest.map(decodeURIComponent), params: params.length === 0 ? '' : `{ ${params.join(', ')} }` };
}

function call(object: string, name: string, ...args: string[]): string {
  return `await ${object}.${name}(${args.filter((arg) => arg !== '').join(', ')});`;
}

function pouch({ method, body }: Shown, url: string, rest: string[], params: string): string {
  const text = JSON.stringify;
  const head = `const db = new PouchDB(${text(url)});\n`;
  const [first, second, third, fourth] = rest;
  if (first === undefined) return head + call('db', method === 'DELETE' ? 'destroy' : 'info');
  if (first === '_all_docs') return head + call('db', 'allDocs', body ?? params);
  if (first === '_changes') return head + call('db', 'changes', params);
  if (first === '_find') return head + call('db', 'find', body ?? '{}');
  if (first === '_explain') return head + call('db', 'explain', body ?? '{}');
  if (first === '_index' && method === 'POST') return head + call('db', 'createIndex', body ?? '{}');
  if (first === '_bulk_docs') return head + call('db', 'bulkDocs', body ?? '{}');
  if (first === '_design' && third === '_view' && second && fourth) return head + call('db', 'query', text(`${second}/${fourth}`), params);
  const id = first === '_design' || first === '_local' ? `${first}/${second ?? ''}` : first;
  if (id.startsWith('_') && !id.includes('/')) return `${head}${call('db', 'fetch', text(rest.join('/')), text({ method, body }))}`;
  if (method === 'GET') return head + call('db', 'get', text(id), params);
  if (method === 'PUT') return head + call('db', 'put', body ?? '{}');
  return head + call('db', 'remove', `await db.get(${text(id)})`);
}

function nano({ method, body }: Shown, url: string, db: string, rest: string[], params: string): string {
  const text = JSON.stringify;
  const head = `const nano = require('nano')(${text(url.replace(/\/$/, ''))});\nconst db = nano.use(${text(decodeURIComponent(db))});\n`;
  const [first, second, third, fourth] = rest;
  if (first === undefined) return method === 'DELETE' ? head + call('nano.db', 'destroy', text(db)) : head + call('db', 'info');
  if (first === '_all_docs' && method === 'GET') return head + call('db', 'list', params);
  if (first === '_changes') return head + call('db', 'changes', params);
  if (first === '_find') return head + call('db', 'find', body ?? '{}');
  if (first === '_index' && method === 'POST') return head + call('db', 'createIndex', body ?? '{}');
  if (first === '_bulk_docs') return head + call('db', 'bulk', body ?? '{}');
  if (first === '_design' && third === '_view' && second && fourth) return head + call('db', 'view', text(second), text(fourth), params);
  const id = first === '_design' || first === '_local' ? `${first}/${second ?? ''}` : first;
  if (!id.startsWith('_') || id.startsWith('_design/')) {
    if (method === 'GET') return head + call('db', 'get', text(id), params);
    if (method === 'PUT') return head + call('db', 'insert', body ?? '{}', text(id));
    if (method === 'DELETE') return head + call('db', 'destroy', text(id), '/* rev */');
  }
  return head + call('nano', 'request', `{ db: ${text(db)}, method: ${text(method)}, path: ${text(rest.join('/'))}${body ? `, body: ${body}` : ''} }`);
}
