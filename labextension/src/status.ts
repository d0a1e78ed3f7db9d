/**
 * What this tab knows about its server's pause: a small state machine that asks the Hub when the server does not answer.
 *
 *     quiet --lost()--> asking --------------------+--> phase (overlay) --> ... --> returning --> quiet
 *     quiet --saving()--> saving --accepted()------+
 *
 * It asks two: the Hub at `follow_url` (a frozen server cannot answer) and, when the Hub says that the server runs or does
 * not answer itself, the server. Only the server's own answer ends the watch. One episode shows a notice of each kind once.
 */

import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';

import type { Probe } from './ext';
import type { HubAnswer } from './hub';
import { pageOf, sameOrigin } from './hub';
import { Pacer, wait } from './pace';
import type {
  Cancel,
  IAccepted,
  ICancel,
  IFollow,
  IPauseMonitor,
  IReturn,
  IStatus,
  Notice,
  Phase,
  View
} from './tokens';

/** Looks at the server, with the Hub's word that it runs, before it counts as stopped: about 10 seconds. */
const PATIENCE = 7;
/** The same when the Hub says that the server is stopped. */
const SURE = 2;
/** Answers of the Hub that do not know yet of the pause that this tab asked for, before they are believed. */
const BELATED = 10;

/** Milliseconds after which a tab is usable again although not every connection is back. */
const LONGEST_RETURN = 15000;

/** Phases after which a running server is a restored one; before them it is the original that goes on. */
const BEYOND_RETURN: ReadonlySet<Phase> = new Set<Phase>(['stopping', 'paused', 'waiting', 'restoring', 'unproven']);

/** Phases from which the original server can still go on. */
const CAN_GO_ON: ReadonlySet<Phase> = new Set<Phase>(['preparing', 'checkpointing', 'saved']);

/** The world around the monitor. */
export interface IWorld {
  status(): Promise<IStatus>;
  probe(): Promise<Probe>;
  askHub(followUrl: string): Promise<HubAnswer>;
  /** Null when the Hub took the ticket, else why not, or '' when it did not say. */
  handIn(cancel: ICancel): Promise<string | null>;
  navigate(address: string): void;
  /** The page's own address. */
  readonly here: string;
  readonly page: Document;
}

/** See the module's head. */
export class PauseMonitor implements IPauseMonitor {
  constructor(private readonly world: IWorld) {
    this._pacer = new Pacer(world.page);
  }

  get view(): View {
    return this._view;
  }

  get viewChanged(): ISignal<this, View> {
    return this._viewChanged;
  }

  get noticed(): ISignal<this, Notice> {
    return this._noticed;
  }

  get returned(): ISignal<this, IReturn> {
    return this._returned;
  }

  get status(): IStatus | null {
    return this._status;
  }

  get statusChanged(): ISignal<this, IStatus> {
    return this._statusChanged;
  }

  async refresh(): Promise<IStatus> {
    const status = await this.world.status();
    this._learn(status);
    return status;
  }

  lost(): void {
    if (this._view.kind !== 'quiet' || this._expired) {
      return;
    }
    if (!this._status?.follow_url) {
      this._notice({ kind: 'stopped' });
      return;
    }
    this._begin(this._status.follow_url);
    this._show({ kind: 'asking' });
    void this._look();
  }

  saving(): void {
    this._pacer.clear();
    this._show({ kind: 'saving' });
  }

  aborted(): void {
    if (this._view.kind === 'saving') {
      this._show({ kind: 'quiet' });
    }
  }

  accepted(accepted: IAccepted): void {
    const followUrl = accepted.follow_url || this._status?.follow_url;
    if (!followUrl) {
      this._show({ kind: 'quiet' });
      return;
    }
    this._begin(followUrl);
    this._asked = accepted.pause?.id ?? accepted.pause_id ?? '';
    this._askedAt = Date.now();
    if (accepted.cancel && sameOrigin(accepted.cancel.url, this.world.here)) {
      this._ticket = accepted.cancel;
      this._cancel = { kind: 'offered' };
    }
    const follow: IFollow = { phase: accepted.phase ?? 'preparing', pause: accepted.pause ?? null };
    if (follow.phase === 'running') {
      follow.phase = 'preparing';
    }
    this._showPhase(follow, true);
    void this._look();
  }

  cancel(): void {
    if (this._ticket && this._view.kind === 'phase' && this._view.cancel?.kind === 'offered') {
      this._cancel = { kind: 'asked' };
      this._showPhase(this._view.follow, this._view.mine);
      void this._callOff(this._ticket, this._episode);
    }
  }

  private async _callOff(ticket: ICancel, episode: number): Promise<void> {
    const message = await this.world.handIn(ticket);
    if (episode !== this._episode || message === null) {
      return; // Taken: the phases that follow show it.
    }
    // Without a word from the Hub it may be away for a moment: the button is there again.
    this._cancel = message === '' ? { kind: 'offered' } : { kind: 'refused', message };
    if (this._view.kind === 'phase') {
      this._showPhase(this._view.follow, this._view.mine);
    }
  }

  private _showPhase(follow: IFollow, mine: boolean): void {
    const open = CAN_GO_ON.has(follow.phase) || this._cancel?.kind === 'refused';
    const elsewhere = this._cancel?.kind === 'offered' && follow.actions && !follow.actions.includes('cancel');
    this._show({ kind: 'phase', follow, mine, cancel: open && !elsewhere ? this._cancel : null });
  }

  /** A new episode: nothing of the last one counts. */
  private _begin(followUrl: string): void {
    this._pacer.clear();
    this._episode++;
    this._followUrl = followUrl;
    this._asked = null;
    this._ticket = null;
    this._cancel = null;
    this._seen.clear();
    this._last = null;
    this._repeat = 0;
    this._about = null;
    this._looks = 0;
    this._belated = 0;
    this._down = false;
    this._told.clear();
  }

  private async _look(): Promise<void> {
    const episode = this._episode;
    let about: Phase | 'unreachable';
    if (sameOrigin(this._followUrl, this.world.here)) {
      const answer = await this.world.askHub(this._followUrl);
      if (episode !== this._episode) {
        return;
      }
      about = answer.kind === 'phase' ? this._hear(answer.follow) : 'unreachable';
      if (answer.kind !== 'phase' || (about === 'running' && !this._tooEarly(answer.follow))) {
        const settled = await this._visit(answer.kind, episode);
        if (settled) {
          return;
        }
      }
    } else {
      this._show({ kind: 'elsewhere', page: pageOf(this._followUrl) });
      about = 'unreachable';
      if (await this._visit('elsewhere', episode)) {
        return;
      }
    }
    this._repeat = about === this._about ? this._repeat + 1 : 0;
    this._about = about;
    this._pacer.set(wait(about, this._repeat), () => void this._look());
  }

  /** Take in what the Hub says; answers the phase. */
  private _hear(follow: IFollow): Phase {
    this._last = follow;
    this._reachable();
    if (follow.phase === 'running') {
      return 'running';
    }
    this._seen.add(follow.phase);
    this._looks = 0;
    const mine = this._asked !== null;
    this._showPhase(follow, mine);
    if (mine && follow.phase === 'paused' && follow.urls?.page) {
      this._asked = null;
      this.world.navigate(follow.urls.page);
    }
    return follow.phase;
  }

  /** Whether the Hub's "running" is older than the pause that this tab asked for. */
  private _tooEarly(follow: IFollow): boolean {
    const younger = typeof follow.age === 'number' && follow.age * 1000 < Date.now() - this._askedAt;
    const known = this._seen.size > 0 || younger || (this._asked !== '' && follow.pause?.id === this._asked);
    return this._asked !== null && !known && ++this._belated <= BELATED;
  }

  /** Look at the server itself; true when the episode is over. */
  private async _visit(heard: HubAnswer['kind'] | 'elsewhere', episode: number): Promise<boolean> {
    const probe = await this.world.probe();
    if (episode !== this._episode) {
      return true;
    }
    if (probe.kind === 'up' && !(heard === 'elsewhere' && this._notYetDown())) {
      await this._return(probe.status);
      return true;
    }
    this._down ||= probe.kind !== 'up';
    if (heard === 'login' || (heard === 'phase' && probe.kind === 'login')) {
      this._end();
      this._expired = true;
      this._notice({ kind: 'expired' });
      return true;
    }
    if (heard === 'unreachable') {
      this._once({ kind: 'unreachable' });
    }
    const stopped = this._last?.hub?.ready === false && !this._last.hub.pending;
    if ((heard === 'phase' || heard === 'unknown') && ++this._looks >= (stopped ? SURE : PATIENCE)) {
      this._end();
      this._notice({ kind: 'stopped' });
      return true;
    }
    return false;
  }

  /** Where only the server can be asked: whether it answers just because the pause that was asked for has not begun. */
  private _notYetDown(): boolean {
    return this._asked !== null && !this._down && ++this._belated <= BELATED;
  }

  private async _return(status: IStatus): Promise<void> {
    const before = this._status;
    const follow = this._last;
    const fresh = Boolean(before?.boot_id && status.boot_id && before.boot_id !== status.boot_id);
    const restored = this._restoredSince(before, status);
    const paused = restored || [...this._seen].some(phase => BEYOND_RETURN.has(phase));
    const begun = this._seen.size > 0 || this._asked !== null;
    const covered = this._view.kind === 'phase' || this._view.kind === 'elsewhere';
    this._pacer.clear();
    this._reachable();
    this._learn(status);
    this._show({ kind: 'returning', covered });
    const work: Promise<unknown>[] = [];
    this._returned.emit({
      status,
      follow,
      fresh,
      cut: paused || begun || fresh,
      waitFor: promise => {
        work.push(promise);
      }
    });
    const episode = this._episode;
    await Promise.race([Promise.allSettled(work), new Promise(resolve => setTimeout(resolve, LONGEST_RETURN))]);
    if (episode !== this._episode) {
      return;
    }
    this._end();
    if (begun && !paused && !fresh) {
      this._notice({ kind: 'failed', reason: follow?.reason ?? null });
    }
  }

  private _restoredSince(before: IStatus | null, now: IStatus): boolean {
    return Boolean(now.restored && now.restored.pause_id !== before?.restored?.pause_id);
  }

  private _end(): void {
    this._pacer.clear();
    this._episode++;
    this._asked = null;
    this._show({ kind: 'quiet' });
  }

  private _reachable(): void {
    if (this._told.delete('unreachable')) {
      this._notice({ kind: 'reachable' });
    }
  }

  private _once(notice: Notice): void {
    if (!this._told.has(notice.kind)) {
      this._told.add(notice.kind);
      this._notice(notice);
    }
  }

  private _notice(notice: Notice): void {
    this._noticed.emit(notice);
  }

  private _learn(status: IStatus): void {
    this._status = status;
    this._statusChanged.emit(status);
  }

  private _show(view: View): void {
    this._view = view;
    this._viewChanged.emit(view);
  }

  private _view: View = { kind: 'quiet' };
  private _status: IStatus | null = null;
  private _followUrl = '';
  /** Id of the pause that this tab asked for; `''` when the server did not name it, null when it did not ask. */
  private _asked: string | null = null;
  /** With what it can be called off. */
  private _ticket: ICancel | null = null;
  private _cancel: Cancel | null = null;
  /** When that was, on this browser's clock (milliseconds). */
  private _askedAt = 0;
  private _seen = new Set<Phase>();
  private _last: IFollow | null = null;
  private _about: Phase | 'unreachable' | null = null;
  private _repeat = 0;
  private _looks = 0;
  private _belated = 0;
  private _down = false;
  private _episode = 0;
  private _expired = false;
  private _told = new Set<Notice['kind']>();
  private readonly _pacer: Pacer;
  private readonly _viewChanged = new Signal<this, View>(this);
  private readonly _noticed = new Signal<this, Notice>(this);
  private readonly _returned = new Signal<this, IReturn>(this);
  private readonly _statusChanged = new Signal<this, IStatus>(this);
}
