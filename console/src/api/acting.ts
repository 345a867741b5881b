/**
 * The user as which an administrator sends the requests of this tab. The server authorizes them as requests of that user. Changing the
 * user reloads the page, so that no data of the other user remains.
 */
import { segment } from './paths.ts';
import { server } from './servers.ts';

const KEY = `settee-acting ${typeof location === 'undefined' ? '' : location.pathname}`;

/** Name of the user, or an empty text. */
export const acting = typeof sessionStorage === 'undefined' || server !== '' ? '' : (sessionStorage.getItem(KEY) ?? '');

/** True if links of the browser are authorized in the same way as requests of the page. */
export const hasPlainLinks = server === '' && acting === '';

export function actingHeader(): Record<string, string> {
  return acting === '' ? {} : { 'X-Settee-User': segment(acting) };
}

/** Sends the requests of this tab as another user, from the page with this address. */
export function actAs(name: string, page = '#/databases'): void {
  sessionStorage.setItem(KEY, name);
  restart(page);
}

export function stopActing(): void {
  sessionStorage.removeItem(KEY);
  restart('#/databases');
}

function restart(page: string): void {
  history.pushState(null, '', page);
  location.reload();
}
