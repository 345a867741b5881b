/**
 * Requests to the server of the page. Paths are relative to its URL, which may have a prefix. Use `send` for documents of users,
 * because parsing rounds numbers; `get`, `post` and `put` parse the response. Only reads may name another server (`on`).
 */
import { actingHeader } from './acting.ts';
import { address, root } from './paths.ts';
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
  /** Name of a server of the list; by default the server of the page. An empty name selects the server of the console. */
  on?: string | undefined;
}

let unauthorizedListener: (isWrite: boolean) => void = () => {};
/** Registers the function that is called after each response with status 401. `isWrite` is false for GET requests. */
export function onUnauthorized(act: (isWrite: boolean) => void): void {
  unauthorizedListener = act;
}

export async function send(method: string, path: string, options: Options = {}): Promise<Answer> {
  const began = performance.now();
  const response = await respond(method, path, options);
  const text = await response.text();
  if (!response.ok) throw refusal(response, text, method, options.on);
  return { status: response.status, text, headers: response.headers, ms: performance.now() - began };
}

/** Sends cookies only to the server of the console. */
async function respond(method: string, path: string, options: Options): Promise<Response> {
  const on = options.on ?? server;
  // Prevents the password dialog of the browser. Not sent to other servers, because their CORS settings may not permit the header.
  const own: Record<string, string> = on === '' ? { 'X-CouchDB-WWW-Authenticate': 'Cookie', ...actingHeader() } : authorization(on);
  const headers: Record<string, string> = { Accept: 'application/json', ...own, ...options.headers };
  if (options.body !== undefined) headers['Content-Type'] = options.type ?? 'application/json';
  const url = address(path, root(on));
  try {
    return await fetch(url, { method, headers, body: options.body ?? null, signal: options.signal ?? null, credentials: on === '' ? 'same-origin' : 'omit' });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, 'unreachable', 'The server does not answer.');
  }
}

export async function getBlob(path: string, signal?: AbortSignal): Promise<Blob> {
  const response = await respond('GET', path, { signal, headers: { Accept: '*/*' } });
  if (!response.ok) throw refusal(response, await response.text(), 'GET');
  return response.blob();
}

/** Returns the content security policy, which the server of the console sends, also if the page uses another server. */
export async function pagePolicy(): Promise<string> {
  const response = await fetch(location.href.split('#')[0] ?? '', { method: 'HEAD', cache: 'no-store' });
  return response.headers.get('content-security-policy') ?? '';
}

export const otherServers = (): Promise<string[]> => pagePolicy().then(serversOf, () => []);

function refusal(response: Response, text: string, method: string, on = server): ApiError {
  let body: { error?: unknown; reason?: unknown } = {};
  try {
    body = JSON.parse(text) as typeof body;
  } catch {
    // The response of a proxy need not be JSON.
  }
  if (response.status === 401 && on === server) unauthorizedListener(method !== 'GET');
  const reason = typeof body.reason === 'string' ? body.reason : text.slice(0, 300) || response.statusText;
  return new ApiError(response.status, typeof body.error === 'string' ? body.error : response.statusText, reason);
}

export async function get<T>(path: string, signal?: AbortSignal, on?: string): Promise<T> {
  return JSON.parse((await send('GET', path, { signal, on })).text) as T;
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal, on?: string): Promise<T> {
  return JSON.parse((await send('POST', path, { body: JSON.stringify(body), signal, on })).text) as T;
}

export async function put<T>(path: string, body: unknown): Promise<T> {
  return JSON.parse((await send('PUT', path, { body: JSON.stringify(body) })).text) as T;
}

/** Runs a request that creates an object and reports a conflict as a name that is in use. */
export async function creating<T>(what: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof ApiError && (error.status === 409 || error.status === 412)) throw new Error(`${what} exists already. Choose another name.`);
    throw error;
  }
}

/** Returns the possible action after an error, or an empty text if the reason is sufficient. */
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
