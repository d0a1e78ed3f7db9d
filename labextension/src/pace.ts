/** When to ask again: backing off while nothing changes, and not at all while nobody looks. */

import type { Phase } from './tokens';

/** Milliseconds: the first wait, the factor after an answer that brought nothing new, the longest wait. */
interface IPace {
  first: number;
  factor: number;
  longest: number;
}

const UNDER_WAY: IPace = { first: 400, factor: 1.2, longest: 1500 };
const RESTING: IPace = { first: 3000, factor: 1.5, longest: 30000 };
const UNREACHABLE: IPace = { first: 1000, factor: 1.7, longest: 15000 };

/** The wait in milliseconds before asking for the `repeat`-th time (from 0) with the same answer. */
export function wait(about: Phase | 'unreachable', repeat: number): number {
  const pace = about === 'unreachable' ? UNREACHABLE : about === 'paused' || about === 'unproven' ? RESTING : UNDER_WAY;
  return Math.min(pace.longest, pace.first * Math.pow(pace.factor, repeat));
}

/** A timer for one callback that holds its breath while the page is hidden and fires at once when it is shown. */
export class Pacer {
  constructor(private readonly page: Document = document) {}

  /** Call `then` after `ms` milliseconds, or as soon as the page is visible, whichever is later. Replaces what was set. */
  set(ms: number, then: () => void): void {
    this.clear();
    this._timer = setTimeout(() => {
      this._timer = undefined;
      if (!this.page.hidden) {
        then();
        return;
      }
      const shown = () => {
        if (!this.page.hidden) {
          this.clear();
          then();
        }
      };
      this._shown = shown;
      this.page.addEventListener('visibilitychange', shown);
    }, ms);
  }

  /** Forget what was set. */
  clear(): void {
    clearTimeout(this._timer);
    this._timer = undefined;
    if (this._shown) {
      this.page.removeEventListener('visibilitychange', this._shown);
      this._shown = undefined;
    }
  }

  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _shown: (() => void) | undefined;
}
