import { PHASES } from '../src/hub';
import type { Phase } from '../src/tokens';
import { duration, estimate, heading, holds, receiptText, sentence, size } from '../src/words';
import { trans } from './helpers';

const phases = [...PHASES] as Phase[];

test.each([
  [0, '0 B'],
  [999, '999 B'],
  [1000, '1.0 kB'],
  [212_400_000, '212 MB'],
  [999_600_000, '1.0 GB'],
  [6.4e9, '6.4 GB'],
  [2e15, '2000 TB']
])('%d bytes are %s, as on the pages of the Hub', (bytes, words) => {
  expect(size(bytes)).toBe(words);
});

test.each([
  [0, '0.1 s'],
  [1.44, '1.4 s'],
  [42.2, '42 s'],
  [200, '3 min'],
  [3 * 3600, '3 h']
])('%d seconds are %s', (seconds, words) => {
  expect(duration(seconds, trans)).toBe(words);
});

test('every phase has words of its own', () => {
  const words = phases.map(phase => sentence({ phase }, trans));
  expect(new Set(words).size).toBe(phases.length);
  expect(phases.map(phase => heading(phase, trans)).every(Boolean)).toBe(true);
});

test('the sentence of the Hub goes first', () => {
  expect(sentence({ phase: 'waiting', sentence: 'Waiting for a GPU in pool a.' }, trans)).toBe(
    'Waiting for a GPU in pool a.'
  );
});

test('what a server holds is counted from lists and from numbers', () => {
  expect(holds([{}, {}], 1, trans)).toBe('2 kernels and 1 terminal');
  expect(holds(1, [], trans)).toBe('1 kernel');
  expect(holds(undefined, null, trans)).toBe('');
});

test('an estimate says what is known and nothing else', () => {
  expect(estimate({ bytes: 2e9, seconds_pause: 4, seconds_resume: 2 }, trans)).toBe(
    'About 2.0 GB will be saved. Pausing takes about 4.0 s, resuming about 2.0 s.'
  );
  expect(estimate({ seconds_pause: 4 }, trans)).toBe('Pausing takes about 4.0 s.');
  expect(estimate({ bytes: null }, trans)).toBe('');
});

test('the receipt of a resume has seconds, size and what is back', () => {
  const text = receiptText(
    {
      resumed: true,
      bytes: 212_000_000,
      kernels: [{ name: 'python3' }],
      before: { terminals: 2, not_returning: ['A connection to db.example.'] },
      seconds: { pause: 3, paused: 7200, resume: 1.4 }
    },
    false,
    trans
  );
  expect(text.good).toBe(true);
  expect(text.line).toBe('Your server resumed in 1.4 s, 212 MB. Back: 1 kernel and 2 terminals.');
  expect(text.lost).toEqual(['A connection to db.example.']);
  expect(text.details.join(' ')).toContain('paused for 2 h');
});

test('a kernel that is missing is named', () => {
  expect(receiptText({ resumed: true, kernels_missing: [{ name: 'ir' }] }, false, trans).lost).toEqual([
    'A kernel (ir) did not come back.'
  ]);
});

test('a fresh server is never called resumed, whatever a receipt says', () => {
  const text = receiptText({ resumed: true, seconds: { resume: 1 } }, true, trans);
  expect(text.good).toBe(false);
  expect(text.line).not.toContain('resumed in');
});

test('of a server that is another one, what a resume does not bring back is no news', () => {
  const before = { not_returning: ['Open network connections end.'] };
  expect(receiptText({ resumed: true, before }, false, trans).lost).toEqual(before.not_returning);
  expect(receiptText({ resumed: false, reasons: ['silent_cold_start'], before }, false, trans).lost).toHaveLength(1);
});

test('why it was not resumed is said in words, and codes of a newer Hub are left out', () => {
  const { good, lost } = receiptText({ resumed: false, reasons: ['silent_cold_start', 'moon_phase'] }, false, trans);
  expect(good).toBe(false);
  expect(lost).toEqual(['The server was started anew instead of being restored; the snapshot is kept.']);
});

test('a weaker proof is told', () => {
  expect(receiptText({ resumed: true, notes: ['proof_by_engine_only'] }, false, trans).details[0]).toContain(
    'rests on'
  );
});

test('a receipt that the Hub has not written is still a receipt', () => {
  expect(receiptText(null, false, trans).line).toBe('Your server resumed.');
});
