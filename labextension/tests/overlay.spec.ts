import { face, Overlay } from '../src/overlay';
import type { View } from '../src/tokens';
import { trans } from './helpers';

let behind: HTMLElement;
let overlay: Overlay;
let acts: { cancel: jest.Mock; leave: jest.Mock; unsaved: jest.Mock };

beforeEach(() => {
  document.body.innerHTML = '<div id="main"><button id="b">b</button></div>';
  behind = document.getElementById('main')!;
  acts = { cancel: jest.fn(), leave: jest.fn(), unsaved: jest.fn(() => false) };
  overlay = new Overlay(trans, behind, acts);
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
  expect(node.querySelector('[role=status]')!.textContent).toContain('Pausing your server');
  expect(node.querySelector('progress')!.value).toBe(0.25);
  expect(node.querySelector('a')!.pathname).toBe('/hub/workspaces/ann');
});

test('a resume that waits says for what, in the words of the machine or the cluster too', () => {
  const waiting: View = { kind: 'phase', mine: false, follow: { phase: 'waiting', detail: '0/3 nodes are available' } };
  expect(face(waiting, trans)!.more).toBe('0/3 nodes are available');
  const paused: View = { kind: 'phase', mine: false, follow: { phase: 'paused', detail: 'write: no space left' } };
  expect(face(paused, trans)!.more).toBe('');
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

test('how far it is stands there in words, and not in what is read out at every change', () => {
  overlay.present({ ...PAUSING, follow: { ...PAUSING.follow, sentence: 'Saving (25 %).', remaining: 12.4 } });
  expect(overlay.node.querySelector('.jp-gkews-Overlay-part')!.textContent).toBe('25 %, about 12 s left');
  for (const live of overlay.node.querySelectorAll('[aria-live]')) {
    expect(live.textContent).not.toContain('25 %');
  }
  overlay.present({ ...PAUSING, follow: { phase: 'restoring', progress: null } });
  expect(overlay.node.querySelector<HTMLElement>('.jp-gkews-Overlay-part')!.hidden).toBe(true);
});

const button = () => overlay.node.querySelector('button')!;

test('the tab that can cancel has a button for it, which is pressed once and keeps the focus', () => {
  overlay.present(PAUSING);
  expect(button().hidden).toBe(true);
  overlay.present({ ...PAUSING, cancel: { kind: 'offered' } });
  expect(button().textContent).toBe('Cancel the pause');
  button().focus();
  button().click();
  expect(acts.cancel).toHaveBeenCalledTimes(1);
  overlay.present({ ...PAUSING, cancel: { kind: 'asked' } });
  expect(button().textContent).toBe('Cancelling…');
  expect(document.activeElement).toBe(button());
  button().click();
  expect(acts.cancel).toHaveBeenCalledTimes(1);
});

test('a cancel that came too late is told with its sentence, and the focus stays inside', () => {
  overlay.present({ ...PAUSING, cancel: { kind: 'offered' } });
  button().focus();
  overlay.present({ ...PAUSING, cancel: { kind: 'refused', message: 'It is too late.' } });
  expect(button().hidden).toBe(true);
  expect(overlay.node.querySelector('.jp-gkews-Overlay-more')!.textContent).toBe('It is too late.');
  expect(overlay.node.contains(document.activeElement)).toBe(true);
});

test('the link leaves without a question, but never takes the place of edits that nobody saved', () => {
  const opened = jest.spyOn(window, 'open').mockReturnValue(null);
  const link = () => overlay.node.querySelector('a')!;
  overlay.present(PAUSING);
  acts.unsaved.mockReturnValue(true);
  link().click(); // this tab asked for the pause: its documents were saved
  expect(acts.leave).toHaveBeenCalledWith('http://localhost/hub/workspaces/ann#cancel');
  overlay.present({ ...PAUSING, mine: false });
  link().click();
  expect(acts.leave).toHaveBeenCalledTimes(1);
  expect(opened).toHaveBeenCalledWith('http://localhost/hub/workspaces/ann#cancel', '_blank', 'noopener');
  acts.unsaved.mockReturnValue(false);
  link().click();
  expect(acts.leave).toHaveBeenCalledTimes(2);
  opened.mockRestore();
});

test('Shift+Tab goes the other way', () => {
  overlay.present({ ...PAUSING, cancel: { kind: 'offered' } });
  const tab = (shiftKey: boolean) =>
    document.activeElement!.dispatchEvent(new KeyboardEvent('keydown', { key: 'Tab', shiftKey, bubbles: true }));
  const at = () => document.activeElement!.tagName;
  tab(true);
  expect(at()).toBe('BUTTON');
  tab(true);
  expect(at()).toBe('A');
  tab(false);
  expect(at()).toBe('BUTTON');
});
