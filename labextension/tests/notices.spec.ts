import { Notification } from '@jupyterlab/apputils';

import type { INotices } from '../src/notices';
import { tellUnproven } from '../src/notices';
import type { IFollow } from '../src/tokens';
import { STATUS, trans } from './helpers';

jest.mock('@jupyterlab/apputils', () => ({ Notification: { warning: jest.fn() } }));
jest.mock('../src/dialog', () => ({}));

const warning = Notification.warning as jest.Mock;
const leave = jest.fn();

function given(workspace: () => Promise<Partial<IFollow>>): INotices {
  return { trans, spawnUrl: '', server: '', store: sessionStorage, page: window, workspace, leave };
}

beforeEach(() => jest.clearAllMocks());

test('a tab that opens on an unproven server is told so, with the way to the choice', async () => {
  await tellUnproven(
    STATUS,
    given(() => Promise.resolve({ phase: 'unproven' }))
  );
  const [words, options] = warning.mock.calls[0] as [string, { actions: { callback: () => void }[] }];
  expect(words).toContain('not the one that was paused');
  expect(words.length).toBeLessThanOrEqual(140); // a toast cuts what is longer
  options.actions[0]!.callback();
  expect(leave).toHaveBeenCalledWith(STATUS.follow_url);
});

test('any other server, and a Hub that does not say, is no news', async () => {
  await tellUnproven(
    STATUS,
    given(() => Promise.resolve({ phase: 'running' }))
  );
  await tellUnproven(
    STATUS,
    given(() => Promise.reject(new Error('away')))
  );
  await tellUnproven(
    { available: false },
    given(() => Promise.resolve({ phase: 'unproven' }))
  );
  expect(warning).not.toHaveBeenCalled();
});
