/**
 * The Hub, as a tab sees it: where it is, and how it answers at `follow_url`.
 *
 * While a server is frozen only the Hub can answer. The tab asks with its ordinary cookies and follows no redirect:
 * a redirect there means that the login has run out.
 */

import type { ICancel, IFollow, Phase } from './tokens';

export type HubAnswer =
  { kind: 'phase'; follow: IFollow } | { kind: 'login' } | { kind: 'unknown' } | { kind: 'unreachable' };

/** All of them; what else an answer says is not from a Hub that we know. */
export const PHASES: ReadonlySet<string> = new Set<Phase>([
  'running',
  'preparing',
  'checkpointing',
  'saved',
  'stopping',
  'paused',
  'waiting',
  'restoring',
  'unproven',
  'deleting'
]);

/** The address as an absolute http(s) URL, or null: nothing else is ever fetched, linked or navigated to. */
export function webUrl(address: string | null | undefined, base: string): URL | null {
  if (!address) {
    return null;
  }
  try {
    const url = new URL(address, base);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url : null;
  } catch {
    return null;
  }
}

/** Whether the tab may ask there itself: with subdomains the Hub is another origin, which no CORS header opens. */
export function sameOrigin(address: string, base: string): boolean {
  return webUrl(address, base)?.origin === new URL(base).origin;
}

/**
 * The page for people that belongs to a `follow_url`. A user who is called like one of the Hub's routes there has the
 * first letter percent-encoded in the page's address, as the Hub does it.
 */
export function pageOf(followUrl: string): string {
  return followUrl.replace(/\/workspaces\/follow\/(?:(follow|files|static)(?=\/|$))?/, (_, reserved?: string) =>
    reserved ? `/workspaces/%${reserved.charCodeAt(0).toString(16)}${reserved.slice(1)}` : '/workspaces/'
  );
}

/** Where the Hub starts this server: what the stock extension's "Restart" opens. */
export function spawnUrl(urls: {
  hubHost?: string | undefined;
  hubPrefix?: string | undefined;
  hubUser?: string | undefined;
  hubServerName?: string | undefined;
}): string {
  const prefix = (urls.hubPrefix ?? '').replace(/\/+$/, '');
  const server = urls.hubServerName ? `/${encodePart(urls.hubUser ?? '')}/${encodePart(urls.hubServerName)}` : '';
  return `${urls.hubHost ?? ''}${prefix}/spawn${server}`;
}

/** One path segment, encoded once: the Hub writes user names into the page either way. */
function encodePart(part: string): string {
  try {
    return encodeURIComponent(decodeURIComponent(part));
  } catch {
    return encodeURIComponent(part);
  }
}

/**
 * Hand in the ticket that cancels a pause; null when the Hub took it, else its sentence, or '' when it has none. Never rejects.
 *
 * No cookie goes with it: the ticket is all that the Hub looks at.
 */
export async function handIn(cancel: ICancel, fetcher: typeof fetch = fetch): Promise<string | null> {
  try {
    const response = await fetcher(cancel.url, {
      method: 'POST',
      body: JSON.stringify({ ticket: cancel.ticket }),
      credentials: 'omit',
      headers: { Accept: 'application/json', 'Content-Type': 'application/json' },
      redirect: 'error'
    });
    if (response.ok) {
      return null;
    }
    const said = (await response.json()) as { message?: unknown } | null;
    return typeof said?.message === 'string' ? said.message : '';
  } catch {
    return '';
  }
}

/** Ask the Hub where the server is. Never rejects. */
export async function askHub(followUrl: string, fetcher: typeof fetch = fetch): Promise<HubAnswer> {
  let response: Response;
  try {
    response = await fetcher(followUrl, {
      cache: 'no-store',
      credentials: 'same-origin',
      headers: { Accept: 'application/json' },
      redirect: 'manual'
    });
  } catch {
    return { kind: 'unreachable' };
  }
  if (response.type === 'opaqueredirect' || response.status === 401 || response.status === 403) {
    return { kind: 'login' };
  }
  if (response.status === 404) {
    return { kind: 'unknown' };
  }
  if (!response.ok) {
    return { kind: 'unreachable' };
  }
  try {
    const follow = (await response.json()) as IFollow;
    return PHASES.has(follow?.phase) ? { kind: 'phase', follow } : { kind: 'unknown' };
  } catch {
    return { kind: 'unreachable' };
  }
}
