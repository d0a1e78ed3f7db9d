import type { NotebookPanel } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';

import type { Output } from '../src/journal';
import { Settled } from '../src/memory';
import { CellKeeper } from '../src/recover';
import type { IJournalCell } from '../src/tokens';
import { setHidden } from './helpers';

/** The parts of a notebook's cell that are read and written. */
class Cell {
  readonly id = 'c1';
  readonly type = 'code';
  executionCount: number | null = null;
  executionState = 'idle';
  shown: Output[] = [];
  readonly outputs = {
    toJSON: () => this.shown,
    add: (output: Output) => this.shown.push(output),
    fromJSON: (outputs: Output[]) => (this.shown = outputs)
  };
}

interface IFuture {
  isDisposed: boolean;
  msg: { header: { msg_id: string } };
}

/** A notebook with one cell, whose kernel is connected. */
class Panel {
  readonly cell = new Cell();
  readonly outputArea: { future?: IFuture } = {};
  readonly model = { cells: [this.cell] };
  readonly content = { widgets: [{ model: this.cell, outputArea: this.outputArea }] };
  readonly connectionStatusChanged = new Signal<Panel, string>(this);
  readonly iopubMessage = new Signal<Panel, unknown>(this);
  readonly saveState = new Signal<Panel, string>(this);
  readonly disposed = new Signal<Panel, void>(this);
  readonly isDisposed = false;
  readonly context = { path: 'a.ipynb', ready: Promise.resolve(), model: { dirty: true }, saveState: this.saveState };
  readonly sessionContext = {
    ready: Promise.resolve(),
    session: { kernel: { id: 'k1', isDisposed: false } },
    connectionStatusChanged: this.connectionStatusChanged,
    iopubMessage: this.iopubMessage
  };

  message(msgId: string, type: string, content: object = {}): void {
    this.iopubMessage.emit({ parent_header: { msg_id: msgId }, header: { msg_type: type }, content });
  }
}

function stream(text: string): Output {
  return { output_type: 'stream', name: 'stdout', text };
}

let panel: Panel;
let journal: IJournalCell[];
let asked: number;
let cut: string[];

function kept(text: string, more: Partial<IJournalCell> = {}): void {
  journal = [{ cell_id: 'c1', msg_id: 'm1', outputs: [stream(text)], done: false, execution_count: 7, ...more }];
}

async function open(): Promise<void> {
  const ask = () => {
    asked++;
    return Promise.resolve({ kernel_id: 'k1', cells: journal });
  };
  new CellKeeper(panel as unknown as NotebookPanel, ask, new Settled(localStorage, '/user/ann/'), path =>
    cut.push(path)
  );
  await jest.advanceTimersByTimeAsync(10);
}

function text(): string {
  return panel.cell.shown.map(output => String(output['text'])).join('');
}

beforeEach(() => {
  jest.useFakeTimers();
  localStorage.clear();
  setHidden(false);
  panel = new Panel();
  journal = [];
  asked = 0;
  cut = [];
});
afterEach(() => jest.useRealTimers());

test('a reloaded notebook shows what a running cell wrote, follows it, and sees it end', async () => {
  panel.cell.shown = [stream('1\n')];
  kept('1\n2\n');
  await open();
  expect(text()).toBe('1\n2\n');
  expect(panel.cell.executionState).toBe('running');
  kept('1\n2\n3\n');
  panel.message('m1', 'stream');
  await jest.advanceTimersByTimeAsync(1000);
  expect(text()).toBe('1\n2\n3\n');
  kept('1\n2\n3\n4\n', { done: true });
  panel.message('m1', 'status', { execution_state: 'idle' });
  await jest.advanceTimersByTimeAsync(1000);
  expect(text()).toBe('1\n2\n3\n4\n');
  expect(panel.cell).toMatchObject({ executionState: 'idle', executionCount: 7 });
});

test('a cell that writes much is asked about less and less often, and not at all while hidden', async () => {
  kept('1\n');
  await open();
  const chatter = async (seconds: number) => {
    const before = asked;
    for (let i = 0; i < seconds * 10; i++) {
      panel.message('m1', 'stream');
      await jest.advanceTimersByTimeAsync(100);
    }
    return asked - before;
  };
  expect(await chatter(60)).toBeLessThan(25);
  setHidden(true);
  expect(await chatter(60)).toBe(0);
  setHidden(false);
  expect(await chatter(6)).toBeGreaterThan(0);
});

test('messages of other runs are no reason to ask', async () => {
  kept('1\n');
  await open();
  const before = asked;
  panel.message('other', 'stream');
  await jest.advanceTimersByTimeAsync(60_000);
  expect(asked).toBe(before);
});

test('a run of this tab first gets what the server held back, and is not doubled', async () => {
  panel.outputArea.future = { isDisposed: false, msg: { header: { msg_id: 'm1' } } };
  panel.cell.shown = [stream('1\n')];
  kept('1\n2\n3\n');
  await open();
  expect(text()).toBe('1\n');
  panel.cell.shown = [stream('1\n2\n3\n4\n')];
  await jest.advanceTimersByTimeAsync(10_000);
  expect(text()).toBe('1\n2\n3\n4\n');
});

test('a gap in a run of this tab is filled', async () => {
  panel.outputArea.future = { isDisposed: false, msg: { header: { msg_id: 'm1' } } };
  panel.cell.shown = [stream('1\n')];
  kept('1\n2\n3\n');
  await open();
  panel.cell.shown = [stream('1\n4\n')];
  kept('1\n2\n3\n4\n');
  await jest.advanceTimersByTimeAsync(10_000);
  expect(text()).toBe('1\n2\n3\n4\n');
});

test('a run of this tab whose end got lost ends', async () => {
  panel.outputArea.future = { isDisposed: false, msg: { header: { msg_id: 'm1' } } };
  panel.cell.executionState = 'running';
  kept('1\n', { done: true });
  await open();
  expect(panel.cell.executionState).toBe('running');
  await jest.advanceTimersByTimeAsync(10_000);
  expect(panel.cell).toMatchObject({ executionState: 'idle', executionCount: 7 });
  expect(text()).toBe('1\n');
});

test('a cell that was run again is not given the output of its older run', async () => {
  panel.outputArea.future = { isDisposed: true, msg: { header: { msg_id: 'm2' } } };
  panel.cell.shown = [stream('new')];
  kept('old\n', { done: true });
  await open();
  expect(text()).toBe('new');
});

test('output that was saved and then cleared by a person stays cleared', async () => {
  kept('1\n', { done: true });
  await open();
  expect(text()).toBe('1\n');
  panel.saveState.emit('completed');
  panel = new Panel();
  await open();
  expect(text()).toBe('');
});

test('output that was never saved is given again after a reload', async () => {
  kept('1\n', { done: true });
  await open();
  panel.saveState.emit('failed');
  panel = new Panel();
  await open();
  expect(text()).toBe('1\n');
});

test('a connection that comes back asks the journal', async () => {
  await open();
  const before = asked;
  panel.connectionStatusChanged.emit('connecting');
  expect(asked).toBe(before);
  panel.connectionStatusChanged.emit('connected');
  expect(asked).toBe(before + 1);
});

test('what the journal had no room for is told once', async () => {
  kept('1\n', { truncated: true });
  await open();
  panel.connectionStatusChanged.emit('connected');
  await jest.advanceTimersByTimeAsync(10);
  expect(cut).toEqual(['a.ipynb']);
});
