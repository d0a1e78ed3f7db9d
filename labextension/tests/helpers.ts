/** What several tests share. */

import type { Probe } from '../src/ext';
import type { HubAnswer } from '../src/hub';
import type { ICancel, IFollow, IStatus, Phase } from '../src/tokens';
import type { IWorld } from '../src/status';

/** A translation bundle that puts the values in and translates nothing. */
export const trans = {
  __: (text: string, ...values: unknown[]) => text.replace(/%(\d)/g, (_, n: string) => String(values[Number(n) - 1])),
  _n: (one: string, many: string, n: number) => (n === 1 ? one : many).replace('%1', String(n))
};

/** Make the page hidden or visible, and tell it. */
export function setHidden(hidden: boolean): void {
  Object.defineProperty(document, 'hidden', { configurable: true, value: hidden });
  document.dispatchEvent(new Event('visibilitychange'));
}

export const STATUS: IStatus = {
  available: true,
  follow_url: '/hub/workspaces/follow/ann',
  boot_id: 'b1',
  restored: null
};

/** A Hub and a server that answer what the test sets, and count how often they are asked. */
export class FakeWorld implements IWorld {
  hub: HubAnswer = { kind: 'phase', follow: { phase: 'running', pause: null } };
  server: Probe = { kind: 'up', status: STATUS };
  asked = 0;
  probed = 0;
  readonly went: string[] = [];
  readonly here = 'http://hub.example/user/ann/lab';
  readonly page = document;

  status(): Promise<IStatus> {
    return Promise.resolve(STATUS);
  }

  probe(): Promise<Probe> {
    this.probed++;
    return Promise.resolve(this.server);
  }

  askHub(): Promise<HubAnswer> {
    this.asked++;
    return Promise.resolve(this.hub);
  }

  /** What the Hub answers to a ticket: null when it takes it. */
  refusal: string | null = null;
  readonly handed: ICancel[] = [];

  handIn(cancel: ICancel): Promise<string | null> {
    this.handed.push(cancel);
    return Promise.resolve(this.refusal);
  }

  navigate(address: string): void {
    this.went.push(address);
  }

  phase(phase: Phase, more: Partial<IFollow> = {}): void {
    this.hub = {
      kind: 'phase',
      follow: { phase, pause: { id: 'p1' }, urls: { page: '/hub/workspaces/ann' }, ...more }
    };
  }
}
