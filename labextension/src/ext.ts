/** The server extension's routes, as this tab calls them. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { IAccepted, IFollow, IJournal, IPreflight, IStatus } from './tokens';

/** The server extension said no, in words for a person. */
export class ExtensionError extends Error {
  constructor(
    message: string,
    /** The stable code, or `http_NNN` when the answer had none. */
    readonly reason: string,
    readonly status: number
  ) {
    super(message);
    this.name = 'ExtensionError';
  }
}

/** What a look at the server itself found. */
export type Probe = { kind: 'up'; status: IStatus } | { kind: 'login' } | { kind: 'down' };

/** Client of `jupyter-pause/v1`. */
export class PauseExtension {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  status(): Promise<IStatus> {
    return this._call<IStatus>('status');
  }

  preflight(): Promise<IPreflight> {
    return this._call<IPreflight>('preflight', {});
  }

  pause(): Promise<IAccepted> {
    return this._call<IAccepted>('pause', {});
  }

  /** The workspace as the Hub sees it, with the receipt of the last resume. */
  workspace(): Promise<Partial<IFollow>> {
    return this._call<Partial<IFollow>>('receipt');
  }

  journal(kernelId: string): Promise<IJournal> {
    return this._call<IJournal>(`journal${URLExt.objectToQueryString({ kernel_id: kernelId })}`);
  }

  /**
   * Look whether the server itself answers, and takes this tab's cookies too. A request has the page's own token, but a
   * websocket has only the cookies: with those gone, the files would be there and every kernel stay disconnected.
   * Never rejects.
   */
  async probe(): Promise<Probe> {
    const found = await this._ask(this.settings);
    if (found.kind === 'up' && this.settings.token) {
      const withCookies = await this._ask({ ...this.settings, token: '' });
      return withCookies.kind === 'login' ? withCookies : found;
    }
    return found;
  }

  /** Follows no redirect: the Hub sends an expired login to its login page. */
  private async _ask(settings: ServerConnection.ISettings): Promise<Probe> {
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(
        this._url('status'),
        { redirect: 'manual', cache: 'no-store' },
        settings
      );
    } catch {
      return { kind: 'down' };
    }
    if (response.type === 'opaqueredirect' || response.status === 401 || response.status === 403) {
      return { kind: 'login' };
    }
    if (response.status === 404) {
      return { kind: 'up', status: { available: false } };
    }
    try {
      return response.ok ? { kind: 'up', status: (await response.json()) as IStatus } : { kind: 'down' };
    } catch {
      return { kind: 'down' };
    }
  }

  private _url(route: string): string {
    return URLExt.join(this.settings.baseUrl, 'jupyter-pause/v1', route);
  }

  private async _call<T>(route: string, body?: object): Promise<T> {
    const init: RequestInit =
      body === undefined
        ? { cache: 'no-store' }
        : { method: 'POST', body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } };
    const response = await ServerConnection.makeRequest(this._url(route), init, this.settings);
    if (response.ok) {
      return (await response.json()) as T;
    }
    const said = (await response.json().catch(() => null)) as { reason?: string; message?: string } | null;
    throw new ExtensionError(
      said?.message || `${response.status} ${response.statusText}`,
      said?.reason || `http_${response.status}`,
      response.status
    );
  }
}
