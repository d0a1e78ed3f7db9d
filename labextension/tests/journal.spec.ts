import type { Output } from '../src/journal';
import { carriedOut, completion, merged, startsWith } from '../src/journal';

const DONE = { done: true, truncated: false };
const RUNS = { done: false, truncated: false };

function out(text: string, name = 'stdout'): Output {
  return { output_type: 'stream', name, text };
}
function result(value: string, count = 1): Output {
  return { output_type: 'execute_result', data: { 'text/plain': value }, metadata: {}, execution_count: count };
}

test('a cell that shows everything is left as it is', () => {
  expect(completion([out('1\n2\n'), result('3')], [out('1\n'), out('2\n'), result('3')], DONE)).toEqual({
    kind: 'complete'
  });
  expect(completion([], [], DONE)).toEqual({ kind: 'complete' });
});

test('what came while nobody listened is added, and nothing twice', () => {
  expect(completion([out('1\n2\n')], [out('1\n2\n3\n4\n'), result('5')], DONE)).toEqual({
    kind: 'append',
    outputs: [out('3\n4\n'), result('5')]
  });
  expect(completion([], [out('a'), result('b')], RUNS)).toEqual({ kind: 'append', outputs: [out('a'), result('b')] });
});

test('a finished run with a gap in its middle gets the whole', () => {
  expect(completion([out('1\n4\n')], [out('1\n2\n3\n4\n')], DONE)).toEqual({
    kind: 'replace',
    outputs: [out('1\n2\n3\n4\n')]
  });
});

test('a cell that is ahead of the journal while it runs keeps what it has', () => {
  expect(completion([out('1\n2\n3\n')], [out('1\n2\n')], RUNS)).toEqual({ kind: 'complete' });
});

test('doubled output of a finished run is put right', () => {
  expect(completion([out('1\n2\n2\n')], [out('1\n2\n')], DONE)).toEqual({ kind: 'replace', outputs: [out('1\n2\n')] });
});

test('stdout and stderr stay apart and in order', () => {
  const kept = [out('a'), out('b', 'stderr'), out('c')];
  expect(completion([out('a')], kept, DONE)).toEqual({ kind: 'append', outputs: kept.slice(1) });
  expect(completion([out('a', 'stderr')], kept, DONE).kind).toBe('replace');
});

test('a cut-off journal never takes away what the cell shows beyond it', () => {
  const cut = { done: true, truncated: true };
  expect(completion([out('1\n2\n3\n')], [out('1\n2\n')], cut)).toEqual({ kind: 'complete' });
  expect(completion([out('1\n')], [out('1\n2\n')], cut)).toEqual({ kind: 'append', outputs: [out('2\n')] });
});

test('a display that was updated differs, and is replaced', () => {
  const display = (value: string): Output => ({
    output_type: 'display_data',
    data: { 'text/plain': value },
    metadata: {}
  });
  expect(completion([display('old')], [display('new')], DONE)).toEqual({ kind: 'replace', outputs: [display('new')] });
});

test('the forms that nbformat allows for one thing are one thing', () => {
  const lines: Output = { output_type: 'stream', name: 'stdout', text: ['1\n', '2\n'] };
  const live: Output = { ...result('x'), transient: {}, data: { 'text/plain': ['x'] } };
  expect(completion([lines, live], [out('1\n2\n'), result('x')], DONE)).toEqual({ kind: 'complete' });
  const json: Output = { output_type: 'display_data', data: { 'application/json': ['a', 'b'] }, metadata: {} };
  expect(merged([json])).toEqual([json]);
});

test('nothing that was given is changed', () => {
  const given = [out('1\r2'), out('3'), { ...result('x'), transient: { display_id: 'd' } }];
  const copy = JSON.parse(JSON.stringify(given)) as Output[];
  merged(given);
  completion(given, given, DONE);
  expect(given).toEqual(copy);
});

test.each([
  ['10%\r20%\r100%', '100%'],
  ['abc\rX\n', 'Xbc\n'],
  ['a\r\nb\r\n', 'a\nb\n'],
  ['ab\bc', 'ac'],
  ['\b\bx', 'x'],
  ['abcd\rab\bZ', 'aZ'],
  ['one\ntwo\rT', 'one\nTwo'],
  ['plain', 'plain']
])('%j reads as %j, as in Lab', (raw, read) => {
  expect(carriedOut(raw)).toBe(read);
});

test('a progress bar is compared by what it shows', () => {
  expect(completion([out('50%')], [out('10%\r'), out('50%')], RUNS)).toEqual({ kind: 'complete' });
  expect(completion([out('10%')], [out('10%\r50%')], RUNS)).toEqual({ kind: 'replace', outputs: [out('50%')] });
});

test('every cut of a run is completed to the whole run', () => {
  const kept = [out('1\n2\n'), out('w', 'stderr'), result('x'), out('3\n4\n')];
  const whole = merged(kept);
  for (let i = 0; i <= whole.length; i++) {
    for (const part of [0, 1, 2, 3]) {
      const next = whole[i];
      const partial =
        part && next?.['output_type'] === 'stream' ? [{ ...next, text: String(next['text']).slice(0, part) }] : [];
      const shown = [...whole.slice(0, i), ...partial];
      const change = completion(shown, kept, RUNS);
      const after = change.kind === 'append' ? merged([...shown, ...change.outputs]) : shown;
      expect(change.kind).not.toBe('replace');
      expect(after).toEqual(whole);
    }
  }
});

test('a live cell that lacks what the journal had is told from one that is ahead', () => {
  expect(startsWith([out('1\n2\n3\n')], [out('1\n2\n')])).toBe(true);
  expect(startsWith([out('1\n3\n')], [out('1\n2\n')])).toBe(false);
  expect(startsWith([], [out('1\n')])).toBe(false);
});
