/**
 * Requests to the server of the page. Paths are relative to its address, so that a prefix is kept.
 * Responses with documents of users stay text (`send`); `get` parses what the server reports about itself.
 */
import { address } from './paths.ts';
import { authorization, server, serversOf } from './servers.ts';

export class ApiError extends Error {
  constructor(readonly status: number, readonly error: string, readonly reason: string) {
    super(reason || error);
  }
}

export interface Answer {
  status: number;
  text: string;
  headers: Headers;
  ms: number;
}

export interface Options {
  body?: string | Blob;
  type?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

let onLoggedOut: (isWrite: boolean) => void = () => {};
/** `act` runs after each answer 401; `isWrite`: the request was more than a poll. */
export function whenLoggedOut(act: (isWrite: boolean) => void): void {
  onLoggedOut = act;
}

export async function send(method: string, path: string, options: Options = {}): Promise<Answer> {
  const began = performance.now();
  const response = await respond(method, path, options);
  const text = await response.text();
  if (!response.ok) throw refusal(response, text, method);
  return { status: response.status, text, headers: response.headers, ms: performance.now() - began };
}

/** Sends a request to the server of the page. Cookies are sent to the server of the console only. */
async function respond(method: string, path: string, options: Options): Promise<Response> {
  // Without this header browsers ask for a password themselves. Other servers need not permit it.
  const own: Record<string, string> = server === '' ? { 'X-CouchDB-WWW-Authenticate': 'Cookie' } : authorization();
  const headers: Record<string, string> = { Accept: 'application/json', ...own, ...options.headers };
  if (options.body !== undefined) headers['Content-Type'] = options.type ?? 'application/json';
  const url = address(path);
  try {
    return await fetch(url, { method, headers, body: options.body ?? null, signal: options.signal ?? null, credentials: server === '' ? 'same-origin' : 'omit' });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, 'unreachable', 'The server does not answer.');
  }
}

/** The content of an attachment. */
export async function getBlob(path: string, signal?: AbortSignal): Promise<Blob> {
  const response = await respond('GET', path, { signal, headers: { Accept: '*/*' } });
  if (!response.ok) throw refusal(response, await response.text(), 'GET');
  return response.blob();
}

/** The policy of this page. The server of the console sends it, also when the page works with another server. */
export async function pagePolicy(): Promise<string> {
  const response = await fetch(location.href.split('#')[0] ?? '', { method: 'HEAD', cache: 'no-store' });
  return response.headers.get('content-security-policy') ?? '';
}

/** The names of the other servers that this page may send requests to. */
export const otherServers = (): Promise<string[]> => pagePolicy().then(serversOf, () => []);

function refusal(response: Response, text: string, method: string): ApiError {
  let told: { error?: unknown; reason?: unknown } = {};
  try {
    told = JSON.parse(text) as typeof told;
  } catch {
    // A proxy may answer in its own way.
  }
  if (response.status === 401) onLoggedOut(method !== 'GET');
  const reason = typeof told.reason === 'string' ? told.reason : text.slice(0, 300) || response.statusText;
  return new ApiError(response.status, typeof told.error === 'string' ? told.error : response.statusText, reason);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return JSON.parse((await send('GET', path, { signal })).text) as T;
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return JSON.parse((await send('POST', path, { body: JSON.stringify(body), signal })).text) as T;
}

export async function put<T>(path: string, body: unknown): Promise<T> {
  return JSON.parse((await send('PUT', path, { body: JSON.stringify(body) })).text) as T;
}

/** Sends a request that creates an object. A conflict means that its name is in use. */
export async function creating<T>(what: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof ApiError && (error.status === 409 || error.status === 412)) throw new Error(`${what} exists already. Choose another name.`);
    throw error;
  }
}

/** The remedy for a refusal; empty where its reason says everything. */
export function advice(error: unknown): string {
  if (!(error instanceof ApiError)) return '';
  switch (error.status) {
    case 0: return server === '' ? 'Check that the server is running and that the network reaches it, then try again.'
      : `Check that the server is running, and that ${location.origin} is one of the origins in its CORS settings.`;
    case 401: return 'Log in as a user with this permission.';
    case 403: return 'This needs an administrator of the database or of the server.';
    case 404: return 'The object is deleted, or this server does not support the request.';
    case 409: return 'Another client has changed the object. Load the newest version and apply the change there.';
    case 412: return 'The name is in use. Choose another one.';
    case 413: return 'It is larger than the limit of the server: max_document_size or max_http_request_size in the configuration.';
    case 507: return 'The disk is full.';
    default: return error.status >= 500 ? 'The log of the server has the details.' : '';
  }
}
