import { face, Overlay } from '../src/overlay';
import type { View } from '../src/tokens';
import { trans } from './helpers';

let behind: HTMLElement;
let overlay: Overlay;

beforeEach(() => {
  document.body.innerHTML = '<div id="main"><button id="b">b</button></div>';
  behind = document.getElementById('main')!;
  overlay = new Overlay(trans, behind);
});
afterEach(() => overlay.dispose());

const PAUSING: View = {
  kind: 'phase',
  mine: true,
  follow: { phase: 'checkpointing', progress: 0.25, urls: { page: '/hub/workspaces/ann' } }
};

test('nothing stands in front of Lab when there is nothing to tell', () => {
  expect(face({ kind: 'quiet' }, trans)).toBeNull();
  expect(face({ kind: 'asking' }, trans)).toBeNull();
  expect(face({ kind: 'returning', covered: false }, trans)).toBeNull();
});

test('a phase is read out, with its progress and the way to the page where it can be cancelled', () => {
  overlay.present(PAUSING);
  const node = overlay.node;
  expect(node.querySelector('[role=status]')!.getAttribute('aria-live')).toBe('polite');
  expect(node.textContent).toContain('Pausing your server');
  expect(node.querySelector('progress')!.value).toBe(0.25);
  expect(node.querySelector('a')!.pathname).toBe('/hub/workspaces/ann');
});

test('Lab behind it is inert and gets its focus back afterwards', () => {
  document.getElementById('b')!.focus();
  overlay.present(PAUSING);
  expect(behind.hasAttribute('inert')).toBe(true);
  expect(overlay.node.contains(document.activeElement)).toBe(true);
  overlay.present({ kind: 'quiet' });
  expect(behind.hasAttribute('inert')).toBe(false);
  expect(document.activeElement!.id).toBe('b');
  expect(document.querySelector('.jp-gkews-Overlay')).toBeNull();
});

test('Tab stays inside', () => {
  overlay.present(PAUSING);
  const tab = () => {
    const event = new KeyboardEvent('keydown', { key: 'Tab', bubbles: true, cancelable: true });
    document.activeElement!.dispatchEvent(event);
    return event.defaultPrevented;
  };
  expect(tab()).toBe(true);
  expect(document.activeElement!.tagName).toBe('A');
  expect(tab()).toBe(true);
  expect(document.activeElement!.className).toBe('jp-Dialog-content');
});

test('words of the Hub are text, and its addresses are web addresses', () => {
  overlay.present({
    kind: 'phase',
    mine: false,
    follow: {
      phase: 'paused',
      sentence: '<img src=x onerror=alert(1)>',
      urls: { page: 'javascript:alert(1)' },
      reason: { code: 'x', sentence: '<b>no</b>', advice: '<i>yes</i>' }
    }
  });
  expect(overlay.node.querySelector('img, b, i')).toBeNull();
  expect(overlay.node.textContent).toContain('<img src=x onerror=alert(1)>');
  expect(overlay.node.querySelector('a')!.hidden).toBe(true);
});

test('a sentence that stays is not read out again', () => {
  overlay.present(PAUSING);
  const text = overlay.node.querySelector('.jp-gkews-Overlay-sentence')!.firstChild;
  overlay.present({ ...PAUSING, follow: { ...PAUSING.follow, progress: 0.5 } });
  expect(overlay.node.querySelector('.jp-gkews-Overlay-sentence')!.firstChild).toBe(text);
  expect(overlay.node.querySelector('progress')!.value).toBe(0.5);
});

test('a paused server has no progress, an unknown end has no number', () => {
  overlay.present({ kind: 'phase', mine: false, follow: { phase: 'paused' } });
  expect(overlay.node.querySelector('progress')!.hidden).toBe(true);
  overlay.present({ kind: 'phase', mine: false, follow: { phase: 'waiting' } });
  expect(overlay.node.querySelector('progress')!.hidden).toBe(false);
  expect(overlay.node.querySelector('progress')!.hasAttribute('value')).toBe(false);
});
