import type { ServerConnection } from '@jupyterlab/services';

import { PauseExtension } from '../src/ext';
import { STATUS } from './helpers';

/** As much of a request as is needed to send one. */
class PlainRequest {
  readonly headers = {
    names: new Set<string>(),
    append: (name: string) => void this.headers.names.add(name),
    set: (name: string) => void this.headers.names.add(name),
    has: (name: string) => this.headers.names.has(name)
  };
}

/** A server that answers with that status whom it knows by the page's token, and whom by the browser's cookies only. */
function server(byToken: number, byCookies: number, token = 'of-the-page'): PauseExtension {
  const fetch = (request: unknown) => {
    const status = (request as PlainRequest).headers.has('Authorization') ? byToken : byCookies;
    return Promise.resolve({ ok: status === 200, status, type: 'basic', json: () => Promise.resolve(STATUS) });
  };
  const settings = { baseUrl: 'http://hub.example/user/ann/', token, init: {}, Request: PlainRequest, fetch };
  return new PauseExtension(settings as unknown as ServerConnection.ISettings);
}

test('a login counts as run out when only the token of the page is left: no websocket would open', async () => {
  expect(await server(200, 403).probe()).toEqual({ kind: 'login' });
  expect(await server(200, 200).probe()).toEqual({ kind: 'up', status: STATUS });
});

test('a page without a token of its own asks once, with its cookies', async () => {
  expect(await server(500, 200, '').probe()).toEqual({ kind: 'up', status: STATUS });
  expect(await server(500, 403, '').probe()).toEqual({ kind: 'login' });
});

test('a server that is away for the second question is still the one that answered the first', async () => {
  expect(await server(200, 503).probe()).toEqual({ kind: 'up', status: STATUS });
});

test('a token that is refused is a login that ran out, and a server that is not there is down', async () => {
  expect(await server(403, 200).probe()).toEqual({ kind: 'login' });
  expect(await server(424, 403).probe()).toEqual({ kind: 'down' });
});
