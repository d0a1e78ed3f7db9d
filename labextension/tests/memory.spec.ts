import { Settled, tell, told } from '../src/memory';

const FULL = {
  getItem: () => {
    throw new DOMException('denied', 'SecurityError');
  },
  setItem: () => {
    throw new DOMException('full', 'QuotaExceededError');
  }
};

beforeEach(() => window.localStorage.clear());

test('a receipt is told once for each pause of each server', () => {
  expect(told(localStorage, '/user/ann/', 'p1')).toBe(false);
  tell(localStorage, '/user/ann/', 'p1');
  expect(told(localStorage, '/user/ann/', 'p1')).toBe(true);
  expect(told(localStorage, '/user/ann/', 'p2')).toBe(false);
  expect(told(localStorage, '/user/ann/gpu/', 'p1')).toBe(false);
});

test('settled runs are remembered across reloads, the oldest forgotten first', () => {
  new Settled(localStorage, '/user/ann/').add(Array.from({ length: 450 }, (_, i) => `m${i}`));
  const again = new Settled(localStorage, '/user/ann/');
  expect(again.has('m449')).toBe(true);
  expect(again.has('m0')).toBe(false);
  expect(new Settled(localStorage, '/user/bob/').has('m449')).toBe(false);
});

test('what others wrote into the storage does no harm', () => {
  localStorage.setItem('gke-workspaces:settled:/user/ann/', '{"a": 1}');
  expect(new Settled(localStorage, '/user/ann/').has('a')).toBe(false);
  localStorage.setItem('gke-workspaces:settled:/user/ann/', 'not json');
  expect(new Settled(localStorage, '/user/ann/').has('a')).toBe(false);
});

test('a browser that stores nothing is told twice and works', () => {
  const warn = jest.spyOn(console, 'warn').mockImplementation(() => {});
  tell(FULL, '/user/ann/', 'p1');
  expect(told(FULL, '/user/ann/', 'p1')).toBe(false);
  new Settled(FULL, '/user/ann/').add(['m1']);
  expect(new Settled(FULL, '/user/ann/').has('m1')).toBe(false);
  expect(warn).toHaveBeenCalled();
  warn.mockRestore();
});
