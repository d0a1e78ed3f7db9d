// JupyterHub's REST and what the pages poll. Errors carry the Hub's sentence and reason code.

const hub = () => window.jhdata?.base_url ?? '/hub/';

function headers(extra) {
  const token = window.jhdata?.xsrf_token;
  return { Accept: 'application/json', ...(token ? { 'X-XSRFToken': token } : {}), ...extra };
}

/** What the Hub answered instead of doing it. `status` 0: it could not be reached. */
export class HubError extends Error {
  constructor(status, message, reason, advice) {
    super(message);
    this.status = status;
    this.reason = reason;
    this.advice = advice;
  }
}

async function request(url, options) {
  let response;
  try {
    response = await fetch(url, { credentials: 'same-origin', redirect: 'manual', cache: 'no-store', ...options });
  } catch {
    throw new HubError(0, 'The Hub cannot be reached. This page tries again by itself.', 'hub_unreachable');
  }
  let body = null;
  if ((response.headers.get('Content-Type') ?? '').startsWith('application/json')) {
    body = await response.json().catch(() => null);
  }
  if (!response.ok) {
    const message =
      typeof body?.message === 'string' && body.message
        ? body.message
        : `The Hub answered with an error (${response.status || 'login'}).`;
    const stale = response.status === 403 && /xsrf/i.test(message);
    throw new HubError(
      response.status,
      message,
      body?.reason,
      stale ? 'Reload this page: you logged in again since it was opened.' : body?.advice
    );
  }
  return body;
}

/** The JSON that a page polls. */
export function look(url) {
  return request(url, { headers: headers() });
}

function serverUrl(view) {
  const name = view.server ? `servers/${encodeURIComponent(view.server)}` : 'server';
  return `${hub()}api/users/${encodeURIComponent(view.user)}/${name}`;
}

function call(method, url) {
  return request(url, {
    method,
    headers: headers(method === 'POST' ? { 'Content-Type': 'application/json' } : {})
  });
}

/** Do what an action's button says. What speaks of a pause names it, so that a late click hits no other one. */
export function perform(action, view) {
  const pause = `${serverUrl(view)}/pause`;
  const named = `${pause}/${encodeURIComponent(view.pause?.id ?? '')}`;
  switch (action) {
    case 'stop':
      return call('DELETE', serverUrl(view));
    case 'pause':
      return call('POST', pause);
    case 'discard':
      return call('DELETE', named);
    default:
      return call('POST', `${named}/${action}`);
  }
}

/** Delete what is still kept of a pause that is over. */
export function discardKept(view, pauseId) {
  return call('DELETE', `${serverUrl(view)}/pause/${encodeURIComponent(pauseId)}`);
}

/** JupyterHub's own page that starts a server, with the admin's form where there is one. */
export function spawnPage(view) {
  return `${hub()}spawn/${encodeURIComponent(view.user)}${view.server ? `/${encodeURIComponent(view.server)}` : ''}`;
}

export function loginPage() {
  return `${hub()}login?next=${encodeURIComponent(location.pathname + location.search)}`;
}

/** The URL if a page may be sent there, else null (never a script). */
export function safeUrl(url) {
  try {
    const parsed = new URL(url, location.href);
    return ['http:', 'https:'].includes(parsed.protocol) ? parsed.href : null;
  } catch {
    return null;
  }
}
