import { askHub, handIn, pageOf, sameOrigin, spawnUrl, webUrl } from '../src/hub';

const HERE = 'https://hub.example/user/ann/lab';

function answering(answer: Partial<Response>): typeof fetch {
  return () => Promise.resolve({ ok: true, status: 200, type: 'basic', ...answer } as Response);
}

test('only web addresses are ever linked or gone to', () => {
  expect(webUrl('/hub/workspaces/ann', HERE)?.href).toBe('https://hub.example/hub/workspaces/ann');
  for (const bad of ['javascript:alert(1)', 'data:text/html,x', 'http://[', '', null, undefined]) {
    expect(webUrl(bad, HERE)).toBeNull();
  }
});

test('with subdomains the Hub is another origin', () => {
  expect(sameOrigin('/hub/workspaces/follow/ann', HERE)).toBe(true);
  expect(sameOrigin('https://hub.example/hub/', 'https://ann.hub.example/user/ann/')).toBe(false);
  expect(sameOrigin('http://hub.example/hub/', HERE)).toBe(false);
});

test.each([
  ['/hub/workspaces/follow/ann', '/hub/workspaces/ann'],
  ['/hub/workspaces/follow/ann/gpu', '/hub/workspaces/ann/gpu'],
  ['/hub/workspaces/follow/follower', '/hub/workspaces/follower'],
  ['/hub/workspaces/follow/follow', '/hub/workspaces/%66ollow'],
  ['/hub/workspaces/follow/files/s', '/hub/workspaces/%66iles/s'],
  ['https://h.example/p/hub/workspaces/follow/u%40x', 'https://h.example/p/hub/workspaces/u%40x']
])('the page of %s is %s', (follow, page) => {
  expect(pageOf(follow)).toBe(page);
});

test('the default server starts at /spawn, a named one at its own address, each name encoded once', () => {
  expect(spawnUrl({ hubPrefix: '/hub/', hubUser: 'ann', hubServerName: '' })).toBe('/hub/spawn');
  expect(spawnUrl({ hubPrefix: '/hub/', hubUser: 'a@b', hubServerName: 'gpu 1' })).toBe('/hub/spawn/a%40b/gpu%201');
  expect(spawnUrl({ hubHost: 'https://h', hubPrefix: '/hub/', hubUser: 'a%40b', hubServerName: 'x' })).toBe(
    'https://h/hub/spawn/a%40b/x'
  );
});

test('a phase is heard', async () => {
  const follow = { phase: 'checkpointing', progress: 0.5 };
  expect(await askHub('/f', answering({ json: () => Promise.resolve(follow) }))).toEqual({ kind: 'phase', follow });
});

test('it asks with cookies, from no cache, and follows no redirect', async () => {
  const fetcher = jest.fn(answering({ json: () => Promise.resolve({ phase: 'paused' }) }));
  await askHub('/f', fetcher);
  expect(fetcher).toHaveBeenCalledWith(
    '/f',
    expect.objectContaining({ cache: 'no-store', credentials: 'same-origin', redirect: 'manual' })
  );
});

test.each([
  ['a login that ran out', answering({ ok: false, status: 403 }), 'login'],
  ['a redirect to the login page', answering({ ok: false, status: 0, type: 'opaqueredirect' }), 'login'],
  ['a Hub that does not know the server', answering({ ok: false, status: 404 }), 'unknown'],
  ['a proxy without its Hub', answering({ ok: false, status: 503 }), 'unreachable'],
  ['no network', () => Promise.reject(new TypeError('Failed to fetch')), 'unreachable'],
  ['a page instead of JSON', answering({ json: () => Promise.reject(new SyntaxError('<')) }), 'unreachable'],
  ['a phase of a newer Hub', answering({ json: () => Promise.resolve({ phase: 'cloning' }) }), 'unknown'],
  ['nothing at all', answering({ json: () => Promise.resolve(null) }), 'unknown']
])('%s is told apart', async (_, fetcher, kind) => {
  expect(await askHub('/f', fetcher)).toEqual({ kind });
});

test("a ticket is handed in without a cookie, and the Hub's sentence comes back", async () => {
  const asked: unknown[] = [];
  const hub = (answer: Partial<Response>) =>
    ((...call: unknown[]) => {
      asked.push(call);
      return answering(answer)('');
    }) as typeof fetch;
  const cancel = { url: '/hub/api/x', ticket: 't' };
  expect(await handIn(cancel, hub({}))).toBeNull();
  expect(asked[0]).toMatchObject(['/hub/api/x', { method: 'POST', body: '{"ticket":"t"}', credentials: 'omit' }]);
  const late = { ok: false, status: 409, json: () => Promise.resolve({ message: 'Too late.' }) };
  expect(await handIn(cancel, hub(late))).toBe('Too late.');
  expect(await handIn(cancel, hub({ ...late, json: () => Promise.reject(new Error('html')) }))).toBe('');
  expect(await handIn(cancel, () => Promise.reject(new TypeError('away')))).toBe('');
});
