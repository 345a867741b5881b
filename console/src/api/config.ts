/** Configuration of the node that receives the request. */
import { get, put, send } from './http.ts';
import { path, query } from './paths.ts';

export type Sections = Record<string, Record<string, string>>;

const ROOT = '_node/_local/_config';

const keyPath = (section: string, key: string) => `${ROOT}/${path`${section}/${key}`}`;

export const readConfig = (signal?: AbortSignal) => get<Sections>(ROOT, signal);

/** Returns when the change takes effect (`at-once`, `after-restart` or `nowhere`), or null if the server does not report it. */
export async function setConfig(section: string, key: string, value: string): Promise<string | null> {
  const answer = await send('PUT', keyPath(section, key), { body: JSON.stringify(value) });
  return answer.headers.get('x-settee-applies');
}

export async function unsetConfig(section: string, key: string): Promise<void> {
  await send('DELETE', keyPath(section, key));
}

/** Description of a configuration key. Only Settee returns descriptions. */
export interface Setting {
  section: string;
  key: string;
  default: string | null;
  value: string;
  applies: 'at-once' | 'after-restart' | 'nowhere';
  doc: string;
}

export const readSettings = (signal?: AbortSignal) =>
  get<{ settings: Setting[] }>('_node/_local/_settings', signal).then(({ settings }) => settings).catch(() => [] as Setting[]);

export interface Cors {
  enabled: boolean;
  origins: string;
  credentials: boolean;
  headers: string;
  methods: string;
}

export function corsOf(sections: Sections): Cors {
  const cors = sections['cors'] ?? {};
  return {
    enabled: (sections['chttpd']?.['enable_cors'] ?? sections['httpd']?.['enable_cors']) === 'true',
    origins: cors['origins'] ?? '',
    credentials: cors['credentials'] === 'true',
    headers: cors['headers'] ?? '',
    methods: cors['methods'] ?? '',
  };
}

export const CORS_HEADERS = 'accept, authorization, content-type, origin, referer';
export const CORS_METHODS = 'GET, PUT, POST, HEAD, DELETE';

export async function setCors(cors: Cors): Promise<void> {
  await setConfig('cors', 'origins', cors.origins);
  await setConfig('cors', 'credentials', String(cors.credentials));
  await setConfig('cors', 'headers', cors.headers || CORS_HEADERS);
  await setConfig('cors', 'methods', cors.methods || CORS_METHODS);
  // Last, because CORS must not be enabled with the previous origins.
  await setConfig('chttpd', 'enable_cors', String(cors.enabled));
}

export const SYSTEM_DATABASES = ['_users', '_replicator', '_global_changes'];

export async function createDatabase(name: string, options: { partitioned?: boolean; access?: boolean } = {}): Promise<void> {
  await put(path`${name}` + query({ partitioned: options.partitioned || undefined, access: options.access || undefined }), {});
}
