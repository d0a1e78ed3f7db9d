/**
 * What stands in front of Lab while the server cannot answer: the phase in words and its progress.
 *
 * It looks like Lab's dialogs but has no button that closes it: it goes when the server is back. Lab behind it is inert,
 * so that focus stays inside; Lab's own dialogs still come in front (a conflict while saving needs an answer).
 */

import { Widget } from '@lumino/widgets';

import { webUrl } from './hub';
import type { Phase, View } from './tokens';
import type { Translate } from './words';
import { heading, part, sentence } from './words';

/** What is written on the overlay for a view; null when there is nothing to show. */
export interface IFace {
  heading: string;
  sentence: string;
  /** Further words, such as the Hub's reason and advice. */
  more: string;
  /** 0..1; null when the end is not known; undefined for no bar. */
  progress: number | null | undefined;
  /** The same in words; '' where it is not known. */
  part: string;
  /** The button that calls the pause off. */
  cancel: { label: string; busy: boolean } | null;
  /** `stays`: the page opens in another tab, since this one may hold edits that nobody saved. */
  link: { label: string; address: string; main: boolean; stays: boolean } | null;
}

/** What a press does. */
export interface IActs {
  cancel(): void;
  /** Go there in this tab, without a question. */
  leave(address: string): void;
  /** Whether documents of this tab have edits that are not saved. */
  unsaved(): boolean;
}

/** A face without bar, button and link. */
const PLAIN = { more: '', progress: undefined, part: '', cancel: null, link: null };

/** The words and the link for a view. */
export function face(view: View, trans: Translate): IFace | null {
  switch (view.kind) {
    case 'quiet':
    case 'asking':
      return null;
    case 'saving':
      return {
        ...PLAIN,
        heading: heading('preparing', trans),
        sentence: trans.__('Saving the documents of this tab.'),
        progress: null
      };
    case 'returning':
      return view.covered
        ? {
            ...PLAIN,
            heading: trans.__('Your server is back'),
            sentence: trans.__('Connecting kernels and terminals.'),
            progress: null
          }
        : null;
    case 'elsewhere':
      return {
        ...PLAIN,
        heading: trans.__('Your server is not answering here'),
        sentence: trans.__('It is being paused, is paused, or is being resumed. Its page shows how far it is.'),
        link: { label: trans.__('Open the server’s page'), address: view.page, main: true, stays: true }
      };
    case 'phase': {
      const { follow, cancel } = view;
      const said = follow.reason ? [follow.reason.sentence, follow.reason.advice] : [];
      if (follow.phase === 'waiting' && follow.detail) {
        said.push(follow.detail);
      }
      const resting = follow.phase === 'paused' || follow.phase === 'unproven';
      return {
        heading: heading(follow.phase, trans),
        sentence: sentence(follow, trans),
        more: [...said, cancel?.kind === 'refused' ? cancel.message : ''].filter(Boolean).join(' '),
        progress: resting ? undefined : (follow.progress ?? null),
        part: part(follow, trans),
        cancel:
          cancel && cancel.kind !== 'refused'
            ? {
                label: cancel.kind === 'asked' ? trans.__('Cancelling…') : trans.__('Cancel the pause'),
                busy: cancel.kind === 'asked'
              }
            : null,
        link: follow.urls?.page ? { ...linkOf(follow.phase, follow.urls.page, trans), stays: !view.mine } : null
      };
    }
  }
}

/** What the page is for in that phase; while a pause can be cancelled there, the focus goes to that button. */
function linkOf(phase: Phase, page: string, trans: Translate): { label: string; address: string; main: boolean } {
  switch (phase) {
    case 'paused':
      return { label: trans.__('Open the pause page to resume'), address: page, main: true };
    case 'unproven':
      return { label: trans.__('Open the pause page to choose'), address: page, main: true };
    case 'preparing':
    case 'checkpointing':
    case 'saved':
      return { label: trans.__('Open the pause page'), address: `${page}#cancel`, main: false };
    default:
      return { label: trans.__('Open the pause page'), address: page, main: false };
  }
}

/** See the module's head. */
export class Overlay extends Widget {
  constructor(
    private readonly trans: Translate,
    /** What becomes inert while the overlay is up. */
    private readonly behind: HTMLElement,
    private readonly acts: IActs
  ) {
    super({ node: createNode() });
    this.addClass('jp-gkews-Overlay');
    // The rest of Lab's keys would act on a server that cannot answer.
    this.node.setAttribute('data-lm-suppress-shortcuts', 'true');
    this.node.addEventListener('keydown', event => this._keepFocus(event));
    this.node.querySelector('button')!.addEventListener('click', event => {
      if ((event.currentTarget as HTMLElement).getAttribute('aria-disabled') !== 'true') {
        this.acts.cancel();
      }
    });
    this.node.querySelector('a')!.addEventListener('click', event => this._follow(event));
  }

  /** Show the view, or hide when there is nothing to show. */
  present(view: View): void {
    const shown = face(view, this.trans);
    if (!shown) {
      this._close();
      return;
    }
    this._stays = shown.link?.stays ?? false;
    const held = document.activeElement;
    fill(this.node, shown);
    if (held instanceof HTMLElement && held.hidden) {
      held.blur(); // The button that had the focus is gone: below, the dialog takes it.
    }
    if (!this.isAttached) {
      this._focused = document.activeElement;
      this.behind.setAttribute('inert', '');
      Widget.attach(this, document.body);
    }
    const inside = this.node.contains(document.activeElement);
    const inDialog = document.activeElement?.closest('.jp-Dialog') && !inside;
    if (!inside && !inDialog) {
      this.node.querySelector<HTMLElement>('.jp-Dialog-content')?.focus();
    }
  }

  /** Tab goes round the sentence, the button and the link, Shift+Tab the other way. */
  private _keepFocus(event: KeyboardEvent): void {
    if (event.key !== 'Tab') {
      return;
    }
    event.preventDefault();
    const stops = [
      ...this.node.querySelectorAll<HTMLElement>('.jp-Dialog-content, button:not([hidden]), a:not([hidden])')
    ];
    const at = stops.findIndex(stop => stop === document.activeElement);
    stops[(at + (event.shiftKey ? stops.length - 1 : 1)) % stops.length]!.focus();
  }

  /** An ordinary click. With a key held down it is the browser's own business: another tab, another window. */
  private _follow(event: MouseEvent): void {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) {
      return;
    }
    event.preventDefault();
    const { href } = event.currentTarget as HTMLAnchorElement;
    if (this._stays && this.acts.unsaved()) {
      window.open(href, '_blank', 'noopener');
    } else {
      this.acts.leave(href);
    }
  }

  private _close(): void {
    if (!this.isAttached) {
      return;
    }
    this.behind.removeAttribute('inert');
    Widget.detach(this);
    if (this._focused instanceof HTMLElement) {
      this._focused.focus();
    }
    this._focused = null;
  }

  private _stays = false;
  private _focused: Element | null = null;
}

function createNode(): HTMLElement {
  const node = document.createElement('div');
  node.innerHTML = `
    <div class="jp-Dialog-content" role="dialog" aria-modal="true" aria-labelledby="jp-gkews-overlay-title" tabindex="-1">
      <div role="status" aria-live="polite">
        <div class="jp-Dialog-header jp-gkews-Overlay-title" id="jp-gkews-overlay-title"></div>
      </div>
      <div class="jp-Dialog-body">
        <p class="jp-gkews-Overlay-sentence"></p>
        <p class="jp-gkews-Overlay-more" role="status" aria-live="polite"></p>
        <progress class="jp-gkews-Overlay-progress" max="1"></progress>
        <p class="jp-gkews-Overlay-part"></p>
      </div>
      <div class="jp-Dialog-footer">
        <a class="jp-gkews-Overlay-link"></a>
        <button type="button" class="jp-Dialog-button jp-mod-reject jp-mod-styled"></button>
      </div>
    </div>`;
  return node;
}

function text(node: HTMLElement, selector: string, value: string): void {
  const target = node.querySelector<HTMLElement>(selector)!;
  // Unchanged text is not set again: a live region would be read out for every answer.
  if (target.textContent !== value) {
    target.textContent = value;
  }
  target.hidden = value === '';
}

function fill(node: HTMLElement, shown: IFace): void {
  text(node, '.jp-gkews-Overlay-title', shown.heading);
  text(node, '.jp-gkews-Overlay-sentence', shown.sentence);
  text(node, '.jp-gkews-Overlay-more', shown.more);
  text(node, '.jp-gkews-Overlay-part', shown.part);
  const bar = node.querySelector<HTMLProgressElement>('progress')!;
  bar.hidden = shown.progress === undefined;
  bar.setAttribute('aria-label', shown.heading);
  if (typeof shown.progress === 'number') {
    bar.value = Math.min(1, Math.max(0, shown.progress));
  } else {
    bar.removeAttribute('value');
  }
  const button = node.querySelector<HTMLButtonElement>('button')!;
  text(node, 'button', shown.cancel?.label ?? '');
  // Not "disabled": that would throw away the focus of the one who pressed it.
  button.setAttribute('aria-disabled', String(shown.cancel?.busy ?? false));
  const link = node.querySelector<HTMLAnchorElement>('a')!;
  const address = webUrl(shown.link?.address, document.baseURI);
  link.hidden = !address;
  if (address) {
    link.href = address.href;
    link.textContent = shown.link!.label;
    link.classList.toggle('jp-mod-accept', shown.link!.main);
  }
}
