/** The words of the wire (server extension and Hub) and the token of the tab's own state. */

import { Token } from '@lumino/coreutils';
import type { ISignal } from '@lumino/signaling';

/** Where a server is; the same words as in the Hub's record. */
export type Phase =
  | 'running'
  | 'preparing'
  | 'checkpointing'
  | 'saved'
  | 'stopping'
  | 'paused'
  | 'waiting'
  | 'restoring'
  | 'unproven'
  | 'deleting';

/** Why something did not go as wished: a stable code, and words for a person. */
export interface IReason {
  code: string;
  sentence: string;
  advice?: string;
}

/** What came back from a pause and what did not. All of it optional: versions differ, and a paused extension is an old one. */
export interface IReceipt {
  resumed?: boolean;
  /** Codes of why it counts as not resumed. */
  reasons?: string[];
  /** Codes of where the proof is weaker than usual. */
  notes?: string[];
  bytes?: number | null;
  kernels?: { id?: string; name?: string }[];
  kernels_missing?: { id?: string; name?: string }[];
  /** What the server said before the pause. */
  before?: { not_returning?: unknown; terminals?: number | unknown[] };
  /** Seconds, null where a clock was not set. */
  seconds?: { pause?: number | null; paused?: number | null; waiting?: number | null; resume?: number | null };
}

/** The Hub's answer at `follow_url`. */
export interface IFollow {
  phase: Phase;
  /** Seconds since the epoch at which the phase began. */
  since?: number | null;
  /** Seconds in this phase. */
  age?: number | null;
  /** The part of the phase that is over, below 1, where known. */
  progress?: number | null;
  /** Seconds that the phase is expected to last, where known. */
  remaining?: number | null;
  sentence?: string;
  reason?: IReason | null;
  /** More about the reason, or about what is waited for, as the machine or the cluster says it. */
  detail?: string | null;
  actions?: string[];
  urls?: { page?: string; server?: string; start?: string };
  pause?: { id: string } | null;
  receipt?: IReceipt | null;
  /** The Hub's own view of the server; in `running` it tells a server that runs from one that is stopped. */
  hub?: { ready?: boolean; pending?: string | null };
}

/** The server extension's answer at `status`. */
export interface IStatus {
  available: boolean;
  /** Why it is not available, for a person. */
  message?: string;
  api?: number | string;
  user?: string;
  server_name?: string;
  follow_url?: string | null;
  /** Random, made in the server's memory: another one means another process. */
  boot_id?: string;
  restored?: { pause_id: string; at?: number } | null;
  receipt?: IReceipt | null;
}

/** What a server holds, as its extension counted it. */
export interface IHolds {
  kernels?: { name?: string; path?: string; state?: string }[];
  terminals?: number | unknown[];
}

/** The facts that the dialog shows before a pause. */
export interface IPreflight {
  bytes?: number | null;
  seconds_pause?: number | null;
  seconds_resume?: number | null;
  refusal?: { reason: string; sentence: string; advice?: string } | null;
  will_not_return?: string[];
  /** As the Hub passes it on, and as the extension says it. */
  holds?: IHolds;
  facts?: IHolds;
}

/** Where the Hub takes this tab's word that its pause is off, and the ticket that proves that it is its pause. */
export interface ICancel {
  url: string;
  ticket: string;
}

/** The answer to an accepted pause. */
export interface IAccepted {
  cancel?: ICancel | null;
  pause?: { id: string } | null;
  pause_id?: string | null;
  phase?: Phase;
  follow_url?: string | null;
}

/** One run of a cell as the server extension's journal kept it. */
export interface IJournalCell {
  cell_id: string;
  msg_id: string;
  /** nbformat outputs, from the start of the run. */
  outputs: Record<string, unknown>[];
  done: boolean;
  execution_count?: number | null;
  /** True when the journal's bound cut something off. */
  truncated?: boolean;
}

export interface IJournal {
  kernel_id: string;
  cells: IJournalCell[];
  next?: number | string | null;
}

/** The way back from a pause: offered, asked for, or refused with the Hub's sentence. */
export type Cancel = { kind: 'offered' } | { kind: 'asked' } | { kind: 'refused'; message: string };

/** What the tab shows in front of everything else. */
export type View =
  | { kind: 'quiet' }
  | { kind: 'saving' }
  | { kind: 'asking' }
  /** `mine`: this tab asked for the pause. `cancel`: what it can do about it, and what came of that. */
  | { kind: 'phase'; follow: IFollow; mine: boolean; cancel?: Cancel | null }
  | { kind: 'elsewhere'; page: string }
  /** The server answers; its connections are being brought back. `covered`: something stood in front of Lab before. */
  | { kind: 'returning'; covered: boolean };

/** What happened that a person is told about once. */
export type Notice =
  | { kind: 'expired' }
  | { kind: 'stopped' }
  | { kind: 'unreachable' }
  | { kind: 'reachable' }
  | { kind: 'failed'; reason: IReason | null };

/** The server answers again after it was lost, paused or nearly paused. */
export interface IReturn {
  status: IStatus;
  /** The Hub's last answer, when there was one. */
  follow: IFollow | null;
  /** The process is not the one that this tab knew. */
  fresh: boolean;
  /** The server was paused, or a pause had begun: every connection was cut, also those that look alive. */
  cut: boolean;
  /** Until this has settled, connections that come and go are no news. */
  waitFor: (work: Promise<unknown>) => void;
}

/** What the tab knows about its server's pause. */
export interface IPauseMonitor {
  readonly view: View;
  readonly viewChanged: ISignal<IPauseMonitor, View>;
  readonly noticed: ISignal<IPauseMonitor, Notice>;
  readonly returned: ISignal<IPauseMonitor, IReturn>;
  readonly status: IStatus | null;
  readonly statusChanged: ISignal<IPauseMonitor, IStatus>;
  /** Learn what the server extension says; rejects when it does not answer. */
  refresh(): Promise<IStatus>;
  /** Something that belongs to this tab's server stopped answering: ask the Hub and decide. */
  lost(): void;
  /** This tab's documents are being saved for a pause; nothing may be edited meanwhile. */
  saving(): void;
  /** The pause that was about to be asked for is off. */
  aborted(): void;
  /** A pause asked for by this tab was accepted. */
  accepted(accepted: IAccepted): void;
  /** Call this tab's own pause off, while the view offers it. */
  cancel(): void;
}

export const IPauseMonitor = new Token<IPauseMonitor>(
  '@gke-workspaces/jupyterlab-pause:IPauseMonitor',
  "What the tab knows about its server's pause."
);

export const COMMAND_PAUSE = 'gke-workspaces:pause';
export const TRANSLATION_DOMAIN = 'gke_workspaces';
