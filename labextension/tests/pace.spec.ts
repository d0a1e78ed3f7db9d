import { Pacer, wait } from '../src/pace';
import { setHidden } from './helpers';

beforeEach(() => {
  jest.useFakeTimers();
  setHidden(false);
});
afterEach(() => jest.useRealTimers());

test('waits grow with every answer that brings nothing new, up to a bound', () => {
  for (const about of ['checkpointing', 'paused', 'unreachable'] as const) {
    const waits = Array.from({ length: 30 }, (_, i) => wait(about, i));
    expect(waits).toEqual([...waits].sort((a, b) => a - b));
    expect(waits[0]).toBeLessThan(waits[5]!);
    expect(waits[29]).toBeLessThanOrEqual(30000);
    expect(waits[29]).toBe(waits[28]);
  }
});

test('a pause under way is asked about sooner than one that rests', () => {
  expect(wait('preparing', 0)).toBeLessThan(500);
  expect(wait('checkpointing', 99)).toBeLessThan(wait('paused', 99));
});

test('a hidden page holds its breath, and asks at once when it is shown', () => {
  const asked = jest.fn();
  setHidden(true);
  new Pacer().set(1000, asked);
  jest.advanceTimersByTime(3600_000);
  expect(asked).not.toHaveBeenCalled();
  setHidden(false);
  expect(asked).toHaveBeenCalledTimes(1);
  setHidden(true);
  setHidden(false);
  expect(asked).toHaveBeenCalledTimes(1);
});

test('what was set is replaced by what is set next, and forgotten when cleared', () => {
  const pacer = new Pacer();
  const first = jest.fn();
  const second = jest.fn();
  pacer.set(1000, first);
  pacer.set(2000, second);
  jest.advanceTimersByTime(5000);
  expect(first).not.toHaveBeenCalled();
  expect(second).toHaveBeenCalledTimes(1);
  setHidden(true);
  pacer.set(10, second);
  jest.advanceTimersByTime(20);
  pacer.clear();
  setHidden(false);
  expect(second).toHaveBeenCalledTimes(1);
});
