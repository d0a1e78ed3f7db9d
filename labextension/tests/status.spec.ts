import { PauseMonitor } from '../src/status';
import type { IReturn, Notice, View } from '../src/tokens';
import { FakeWorld, setHidden, STATUS } from './helpers';

let world: FakeWorld;
let monitor: PauseMonitor;
let notices: Notice[];
let views: View['kind'][];
let returns: IReturn[];

/** Let time pass in steps, with the promises that come due. */
async function pass(ms: number): Promise<void> {
  await jest.advanceTimersByTimeAsync(ms);
}

beforeEach(async () => {
  jest.useFakeTimers();
  setHidden(false);
  world = new FakeWorld();
  monitor = new PauseMonitor(world);
  notices = [];
  views = [];
  returns = [];
  monitor.noticed.connect((_, notice) => notices.push(notice));
  monitor.viewChanged.connect((_, view) => views.push(view.kind));
  monitor.returned.connect((_, back) => returns.push(back));
  await monitor.refresh();
});
afterEach(() => jest.useRealTimers());

function pressed(): void {
  monitor.saving();
  monitor.accepted({ pause: { id: 'p1' }, phase: 'preparing', follow_url: STATUS.follow_url! });
}

test('the tab that pressed Pause shows each phase and goes to the Paused page, once', async () => {
  world.server = { kind: 'down' };
  world.phase('preparing');
  pressed();
  await pass(500);
  world.phase('checkpointing', { progress: 0.4 });
  await pass(1500);
  expect(monitor.view).toMatchObject({ kind: 'phase', mine: true, follow: { phase: 'checkpointing', progress: 0.4 } });
  expect(world.went).toEqual([]);
  world.phase('paused');
  await pass(3600_000);
  expect(world.went).toEqual(['/hub/workspaces/ann']);
  expect(notices).toEqual([]);
});

test('another tab learns of it from its lost connection, says "paused", and comes back by itself', async () => {
  world.server = { kind: 'down' };
  world.phase('checkpointing');
  monitor.lost();
  await pass(10);
  expect(monitor.view).toMatchObject({ kind: 'phase', mine: false });
  world.phase('paused');
  await pass(60_000);
  expect(monitor.view).toMatchObject({ kind: 'phase', follow: { phase: 'paused' } });
  expect(world.went).toEqual([]);
  world.phase('restoring');
  await pass(31_000);
  world.phase('running');
  world.server = { kind: 'up', status: { ...STATUS, restored: { pause_id: 'p1' } } };
  await pass(31_000);
  expect(monitor.view.kind).toBe('quiet');
  expect(returns).toHaveLength(1);
  expect(returns[0]).toMatchObject({ fresh: false, cut: true });
  expect(notices).toEqual([]);
});

test('a pause that failed is told with its reason, and the tab goes on', async () => {
  world.server = { kind: 'down' };
  world.phase('checkpointing');
  pressed();
  await pass(2000);
  const reason = { code: 'disk_full', sentence: 'There is no room.', advice: 'Make some.' };
  world.phase('running', { reason });
  world.server = { kind: 'up', status: STATUS };
  await pass(5000);
  expect(monitor.view.kind).toBe('quiet');
  expect(notices).toEqual([{ kind: 'failed', reason }]);
  expect(returns[0]).toMatchObject({ fresh: false, cut: true });
});

test('a Hub that still says "running" right after the press is not taken for a failure', async () => {
  world.hub = { kind: 'phase', follow: { phase: 'running', pause: null, age: 5000 } };
  pressed();
  await pass(1500);
  expect(notices).toEqual([]);
  expect(monitor.view).toMatchObject({ kind: 'phase', mine: true });
  world.phase('checkpointing');
  world.server = { kind: 'down' };
  await pass(3000);
  expect(monitor.view).toMatchObject({ kind: 'phase', follow: { phase: 'checkpointing' } });
});

test('a pause that failed between two questions is seen by the age of "running"', async () => {
  world.hub = { kind: 'phase', follow: { phase: 'running', pause: null, age: 0.5 } };
  monitor.accepted({ phase: 'preparing' });
  await pass(3000);
  expect(notices).toEqual([{ kind: 'failed', reason: null }]);
});

test('nothing is asked while the page is hidden', async () => {
  world.server = { kind: 'down' };
  world.phase('paused');
  monitor.lost();
  await pass(10);
  setHidden(true);
  await pass(100);
  const before = world.asked + world.probed;
  await pass(24 * 3600_000);
  expect(world.asked + world.probed).toBe(before);
  setHidden(false);
  await pass(10);
  expect(world.asked + world.probed).toBeGreaterThan(before);
});

test('a paused server is asked about at most twice a minute in the long run', async () => {
  world.server = { kind: 'down' };
  world.phase('paused');
  monitor.lost();
  await pass(600_000);
  const before = world.asked;
  await pass(3600_000);
  expect(world.asked - before).toBeLessThanOrEqual(120);
});

test('a connection that broke with the server up brings back what broke, without a word', async () => {
  monitor.lost();
  await pass(10);
  expect(returns).toHaveLength(1);
  expect(returns[0]).toMatchObject({ cut: false, fresh: false });
  expect(views).not.toContain('phase');
  expect(notices).toEqual([]);
});

test('connections that come and go while they are being brought back are no news', async () => {
  let done = () => {};
  monitor.returned.connect((_, { waitFor }) => waitFor(new Promise<void>(resolve => (done = resolve))));
  monitor.lost();
  await pass(10);
  monitor.lost();
  monitor.lost();
  await pass(1000);
  expect(world.probed).toBe(1);
  expect(monitor.view.kind).toBe('returning');
  done();
  await pass(10);
  expect(monitor.view.kind).toBe('quiet');
});

test('a connection that never comes back does not hold the tab for ever', async () => {
  monitor.returned.connect((_, { waitFor }) => waitFor(new Promise(() => {})));
  monitor.lost();
  await pass(20_000);
  expect(monitor.view.kind).toBe('quiet');
});

test('"Restart" is offered for a stopped server, never while a record is open', async () => {
  world.server = { kind: 'down' };
  for (const phase of [
    'preparing',
    'checkpointing',
    'saved',
    'stopping',
    'paused',
    'waiting',
    'restoring',
    'unproven'
  ] as const) {
    world.phase(phase);
    monitor.lost();
    await pass(120_000);
  }
  expect(notices).toEqual([]);
  world.phase('running', { hub: { ready: false, pending: null } });
  await pass(120_000);
  expect(notices).toEqual([{ kind: 'stopped' }]);
  expect(monitor.view.kind).toBe('quiet');
});

test('a server that starts is given time before it counts as stopped', async () => {
  world.server = { kind: 'down' };
  world.phase('running', { hub: { ready: false, pending: 'spawn' } });
  monitor.lost();
  await pass(3000);
  expect(notices).toEqual([]);
  world.server = { kind: 'up', status: STATUS };
  await pass(10_000);
  expect(notices).toEqual([]);
  expect(returns).toHaveLength(1);
});

test('a login that ran out is told once', async () => {
  world.hub = { kind: 'login' };
  world.server = { kind: 'login' };
  for (let i = 0; i < 5; i++) {
    monitor.lost();
    await pass(60_000);
  }
  expect(notices).toEqual([{ kind: 'expired' }]);
});

test('a login at the Hub that ran out does not matter while the server lets the tab in', async () => {
  world.hub = { kind: 'login' };
  monitor.lost();
  await pass(10);
  expect(notices).toEqual([]);
  expect(returns).toHaveLength(1);
});

test('a network that is away for minutes is told once, and the tab comes back resumed', async () => {
  world.hub = { kind: 'unreachable' };
  world.server = { kind: 'down' };
  monitor.lost();
  await pass(180_000);
  expect(notices).toEqual([{ kind: 'unreachable' }]);
  world.phase('running');
  world.server = { kind: 'up', status: { ...STATUS, restored: { pause_id: 'p9' } } };
  await pass(16_000);
  expect(notices).toEqual([{ kind: 'unreachable' }, { kind: 'reachable' }]);
  expect(returns[0]).toMatchObject({ cut: true, fresh: false });
});

test('a Hub that is away does not matter while the server answers', async () => {
  world.hub = { kind: 'unreachable' };
  monitor.lost();
  await pass(10);
  expect(notices).toEqual([]);
  expect(returns).toHaveLength(1);
});

test('another boot id is another process', async () => {
  world.server = { kind: 'down' };
  world.phase('paused');
  monitor.lost();
  await pass(10);
  world.phase('running');
  world.server = { kind: 'up', status: { ...STATUS, boot_id: 'b2' } };
  await pass(60_000);
  expect(returns[0]).toMatchObject({ fresh: true, cut: true });
  expect(notices).toEqual([]);
});

test('a Hub of another origin is never asked: the tab has a link and watches the server', async () => {
  const followUrl = 'http://other.example/hub/workspaces/follow/ann';
  monitor.accepted({ pause: { id: 'p1' }, follow_url: followUrl });
  await pass(1000);
  expect(monitor.view).toEqual({ kind: 'elsewhere', page: 'http://other.example/hub/workspaces/ann' });
  expect(returns).toEqual([]);
  world.server = { kind: 'down' };
  await pass(60_000);
  expect(notices).toEqual([]);
  world.server = { kind: 'up', status: { ...STATUS, restored: { pause_id: 'p1' } } };
  await pass(60_000);
  expect(world.asked).toBe(0);
  expect(returns).toHaveLength(1);
  expect(monitor.view.kind).toBe('quiet');
});

test('a save that failed takes the overlay away again', () => {
  monitor.saving();
  expect(monitor.view.kind).toBe('saving');
  monitor.aborted();
  expect(monitor.view.kind).toBe('quiet');
});

test('without a hub that can pause, a lost server is a stopped one', async () => {
  world.status = () => Promise.resolve({ available: false, follow_url: null });
  await monitor.refresh();
  monitor.lost();
  expect(notices).toEqual([{ kind: 'stopped' }]);
});

const TICKET = { url: '/hub/api/users/ann/server/pause/p1/cancel-ticket', ticket: 'ab'.repeat(32) };
const offered = () => (monitor.view.kind === 'phase' ? monitor.view.cancel : undefined);

test('the tab that asked for the pause can call it off until the server is removed', async () => {
  world.phase('checkpointing', { actions: ['cancel', 'resume'] });
  monitor.accepted({ pause: { id: 'p1' }, cancel: TICKET, follow_url: '/hub/workspaces/follow/ann' });
  await pass(10);
  expect(offered()).toEqual({ kind: 'offered' });
  monitor.cancel();
  monitor.cancel();
  await pass(10);
  expect(world.handed).toEqual([TICKET]);
  expect(offered()).toEqual({ kind: 'asked' });
  world.phase('stopping');
  await pass(3000);
  expect(offered()).toBeNull();
});

test('a cancel that the Hub refuses is told, and not offered again', async () => {
  world.phase('saved', { actions: ['cancel'] });
  world.refusal = 'It is too late to cancel.';
  monitor.accepted({ pause: { id: 'p1' }, cancel: TICKET, follow_url: '/hub/workspaces/follow/ann' });
  await pass(10);
  monitor.cancel();
  await pass(10);
  expect(offered()).toEqual({ kind: 'refused', message: 'It is too late to cancel.' });
});

test('a cancel that did not reach the Hub can be pressed again', async () => {
  world.phase('checkpointing');
  world.refusal = '';
  monitor.accepted({ pause: { id: 'p1' }, cancel: TICKET, follow_url: '/hub/workspaces/follow/ann' });
  await pass(10);
  monitor.cancel();
  await pass(10);
  expect(offered()).toEqual({ kind: 'offered' });
});

test('who did not ask for the pause, and who is on another origin, is offered no cancel', async () => {
  world.phase('checkpointing');
  world.server = { kind: 'down' };
  monitor.lost();
  await pass(10);
  expect(offered()).toBeNull();
  monitor.cancel();
  const cancel = { ...TICKET, url: `http://other.example${TICKET.url}` };
  monitor.accepted({ pause: { id: 'p1' }, cancel, follow_url: '/hub/workspaces/follow/ann' });
  await pass(10);
  expect(offered()).toBeNull();
  monitor.cancel();
  expect(world.handed).toEqual([]);
});

test('a pause that is being cancelled elsewhere is not offered to be cancelled here', async () => {
  world.phase('checkpointing', { actions: ['resume'] });
  monitor.accepted({ pause: { id: 'p1' }, cancel: TICKET, follow_url: '/hub/workspaces/follow/ann' });
  await pass(10);
  expect(offered()).toBeNull();
});
