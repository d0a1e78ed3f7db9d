/**
 * Notebooks after the server was away, or opened anew: cells get the output that came while nobody listened.
 *
 * A notebook asks the journal whenever its kernel becomes connected. Cells of which the journal says that they still run are
 * followed by the kernel's own messages (a reloaded tab gets those, but Lab no longer knows which cell they belong to): a
 * message of such a run is the sign to ask again, seldom when there are many and never while the page is hidden.
 *
 * A run that this tab itself asked for goes on getting its messages, first those that the server held back. They are let
 * through before anything is compared, and the journal then only fills a real gap.
 */

import type { ICodeCellModel } from '@jupyterlab/cells';
import type { IOutput } from '@jupyterlab/nbformat';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel, KernelMessage } from '@jupyterlab/services';

import type { Completion, Output } from './journal';
import { completion, startsWith } from './journal';
import type { Settled } from './memory';
import { Pacer } from './pace';
import type { IJournal, IJournalCell } from './tokens';

/** Milliseconds between two questions about a run that sends messages: the first, the factor, the longest. */
const FIRST = 500;
const FACTOR = 1.5;
const LONGEST = 5000;
/** Milliseconds in which messages that the server has sent are here for sure. */
const SETTLE = 2000;

/** Asks the journal of a kernel. */
export type AskJournal = (kernelId: string) => Promise<IJournal>;

/** Keeps one notebook's cells complete. */
export class CellKeeper {
  constructor(
    private readonly panel: NotebookPanel,
    private readonly ask: AskJournal,
    private readonly settled: Settled,
    /** Told once a run whose output the journal could not keep whole. */
    private readonly cutOff: (path: string) => void
  ) {
    const { sessionContext } = panel;
    sessionContext.connectionStatusChanged.connect(this._onConnection, this);
    sessionContext.iopubMessage.connect(this._onMessage, this);
    panel.context.saveState.connect(this._onSave, this);
    panel.disposed.connect(() => this._pacer.clear());
    void Promise.all([sessionContext.ready, panel.context.ready]).then(() => this.complete());
  }

  /** Ask the journal and complete the cells. Never rejects: without a journal the notebook is as Lab left it. */
  async complete(): Promise<void> {
    const kernel = this.panel.sessionContext.session?.kernel;
    if (!kernel || !this.panel.model) {
      return;
    }
    let journal: IJournal;
    try {
      journal = await this.ask(kernel.id);
    } catch (error) {
      console.warn('The journal of the kernel could not be read.', error);
      return;
    }
    if (this.panel.isDisposed || kernel.isDisposed) {
      return;
    }
    this._running.clear();
    const latest = new Map(journal.cells.map(cell => [cell.cell_id, cell]));
    for (const cell of this.panel.model.cells) {
      const kept = cell.type === 'code' ? latest.get(cell.id) : undefined;
      if (kept) {
        this._apply(cell as ICodeCellModel, kept);
      }
    }
  }

  private _apply(cell: ICodeCellModel, kept: IJournalCell): void {
    const future = this._futureOf(cell);
    if (future && future.msg.header.msg_id !== kept.msg_id) {
      return; // This tab ran the cell again; the journal speaks of an older run.
    }
    if (kept.done && this.settled.has(kept.msg_id)) {
      return; // Shown and saved before: what a person did with it since (clear, edit) stays.
    }
    const outputs = cell.outputs.toJSON() as Output[];
    const live = future !== undefined && !future.isDisposed;
    if (live && !this._lacks(outputs, kept)) {
      return;
    }
    const change = completion(outputs, kept.outputs, { done: kept.done, truncated: Boolean(kept.truncated) });
    carryOut(cell, change);
    if (kept.truncated && !this._told.has(kept.msg_id)) {
      this._told.add(kept.msg_id);
      this.cutOff(this.panel.context.path);
    }
    if (!kept.done) {
      if (!future) {
        this._running.add(kept.msg_id);
        setRunning(cell, this.panel);
      }
    } else if (typeof kept.execution_count === 'number') {
      if (cell.executionCount !== kept.execution_count) {
        cell.executionCount = kept.execution_count;
      }
      setIdle(cell);
    }
    if (kept.done) {
      this._finished.add(kept.msg_id);
      if (!this.panel.context.model.dirty) {
        this._onSave(null, 'completed');
      }
    }
  }

  /**
   * Whether a run that Lab still waits for lacks what the journal had a moment ago. Asks again when it cannot know yet, and
   * when the run ends.
   */
  private _lacks(shown: Output[], kept: IJournalCell): boolean {
    const earlier = this._earlier.get(kept.msg_id);
    this._running.add(kept.msg_id);
    if (!earlier) {
      this._earlier.set(kept.msg_id, kept.outputs);
      this._askIn(SETTLE);
      return false;
    }
    this._earlier.delete(kept.msg_id);
    return kept.done || !startsWith(shown, earlier);
  }

  /** What is finished and on disk now is settled. */
  private _onSave(_: unknown, state: string): void {
    if (state !== 'completed') {
      return;
    }
    for (const widget of this.panel.content.widgets) {
      const future = futureOf(widget);
      if (future?.isDisposed && !this._running.has(future.msg.header.msg_id)) {
        this._finished.add(future.msg.header.msg_id);
      }
    }
    this.settled.add(this._finished);
    this._finished.clear();
  }

  /** The last request with which this tab itself ran the cell. */
  private _futureOf(cell: ICodeCellModel): Kernel.IShellFuture | undefined {
    return futureOf(this.panel.content.widgets.find(({ model }) => model === (cell as unknown)));
  }

  private _onConnection(_: unknown, status: Kernel.ConnectionStatus): void {
    if (status === 'connected') {
      this._earlier.clear();
      this._next = FIRST;
      void this.complete();
    }
  }

  private _onMessage(_: unknown, message: KernelMessage.IMessage): void {
    const parent = (message.parent_header as { msg_id?: string }).msg_id;
    if (!parent || !this._running.has(parent)) {
      return;
    }
    const ended =
      message.header.msg_type === 'status' &&
      (message.content as { execution_state?: string }).execution_state === 'idle';
    if (ended) {
      this._askIn(FIRST);
    } else if (!this._asking && !this._earlier.has(parent) && !this._isOurs(parent)) {
      this._asking = true;
      this._askIn(this._next);
      this._next = Math.min(LONGEST, this._next * FACTOR);
    }
  }

  /** Whether this tab itself asked for the run, so that Lab puts its messages into the cell. */
  private _isOurs(msgId: string): boolean {
    return this.panel.content.widgets.some(widget => futureOf(widget)?.msg.header.msg_id === msgId);
  }

  private _askIn(ms: number): void {
    this._pacer.set(ms, () => {
      this._asking = false;
      void this.complete();
    });
  }

  private _asking = false;
  private _next = FIRST;
  private readonly _pacer = new Pacer();
  /** What the journal had of this tab's own runs when it was asked first. */
  private readonly _earlier = new Map<string, Output[]>();
  /** Requests that the journal says are under way. */
  private readonly _running = new Set<string>();
  private readonly _told = new Set<string>();
  /** Runs that are complete in the document and will be settled when it is saved. */
  private readonly _finished = new Set<string>();
}

function futureOf(widget: unknown): Kernel.IShellFuture | undefined {
  return (widget as { outputArea?: { future?: Kernel.IShellFuture } } | undefined)?.outputArea?.future;
}

function carryOut(cell: ICodeCellModel, change: Completion): void {
  if (change.kind === 'append') {
    for (const output of change.outputs) {
      cell.outputs.add(output as IOutput);
    }
  } else if (change.kind === 'replace') {
    cell.outputs.fromJSON(change.outputs as IOutput[]);
  }
}

/** The prompt becomes `[*]`. Before Lab 4.3 only the widget could say so. */
function setRunning(cell: ICodeCellModel, panel: NotebookPanel): void {
  if ('executionState' in cell) {
    if (cell.executionState !== 'running') {
      cell.executionState = 'running';
    }
    return;
  }
  const widget = panel.content.widgets.find(({ model }) => model === (cell as unknown));
  (widget as { setPrompt?: (prompt: string) => void } | undefined)?.setPrompt?.('*');
}

function setIdle(cell: ICodeCellModel): void {
  if ('executionState' in cell && cell.executionState !== 'idle') {
    cell.executionState = 'idle';
  }
}

/** Keep every notebook of this tab, now and later. */
export function keepNotebooks(
  tracker: INotebookTracker,
  ask: AskJournal,
  settled: Settled,
  cutOff: (path: string) => void
): void {
  const keep = (_: unknown, panel: NotebookPanel) => {
    new CellKeeper(panel, ask, settled, cutOff);
  };
  tracker.forEach(panel => keep(tracker, panel));
  tracker.widgetAdded.connect(keep);
}
