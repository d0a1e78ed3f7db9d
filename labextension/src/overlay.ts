/**
 * What stands in front of Lab while the server cannot answer: the phase in words and its progress.
 *
 * It looks like Lab's dialogs but has no buttons that end it: it goes when the server is back. Lab behind it is inert,
 * so that focus stays inside; Lab's own dialogs still come in front (a conflict while saving needs an answer).
 */

import { Widget } from '@lumino/widgets';

import { webUrl } from './hub';
import type { View } from './tokens';
import type { Translate } from './words';
import { heading, sentence } from './words';

/** What is written on the overlay for a view; null when there is nothing to show. */
export interface IFace {
  heading: string;
  sentence: string;
  /** Further words, such as the Hub's reason and advice. */
  more: string;
  /** 0..1; null when the end is not known; undefined for no bar. */
  progress: number | null | undefined;
  link: { label: string; address: string; main: boolean } | null;
}

/** The words and the link for a view. */
export function face(view: View, trans: Translate): IFace | null {
  switch (view.kind) {
    case 'quiet':
    case 'asking':
      return null;
    case 'saving':
      return {
        heading: heading('preparing', trans),
        sentence: trans.__('Saving the documents of this tab.'),
        more: '',
        progress: null,
        link: null
      };
    case 'returning':
      return view.covered
        ? {
            heading: trans.__('Your server is back'),
            sentence: trans.__('Connecting kernels and terminals.'),
            more: '',
            progress: null,
            link: null
          }
        : null;
    case 'elsewhere':
      return {
        heading: trans.__('Your server is not answering here'),
        sentence: trans.__('It is being paused, is paused, or is being resumed. Its page shows how far it is.'),
        more: '',
        progress: undefined,
        link: { label: trans.__('Open the server’s page'), address: view.page, main: true }
      };
    case 'phase': {
      const { follow } = view;
      const resting = follow.phase === 'paused' || follow.phase === 'unproven';
      return {
        heading: heading(follow.phase, trans),
        sentence: sentence(follow, trans),
        more: follow.reason ? [follow.reason.sentence, follow.reason.advice].filter(Boolean).join(' ') : '',
        progress: resting ? undefined : (follow.progress ?? null),
        link: follow.urls?.page
          ? {
              label: resting ? trans.__('Open the pause page to resume') : trans.__('Open the pause page'),
              address: follow.urls.page,
              main: resting
            }
          : null
      };
    }
  }
}

/** See the module's head. */
export class Overlay extends Widget {
  constructor(
    private readonly trans: Translate,
    /** What becomes inert while the overlay is up. */
    private readonly behind: HTMLElement
  ) {
    super({ node: createNode() });
    this.addClass('jp-gkews-Overlay');
    // The rest of Lab's keys would act on a server that cannot answer.
    this.node.setAttribute('data-lm-suppress-shortcuts', 'true');
    this.node.addEventListener('keydown', event => this._keepFocus(event));
  }

  /** Show the view, or hide when there is nothing to show. */
  present(view: View): void {
    const shown = face(view, this.trans);
    if (!shown) {
      this._close();
      return;
    }
    fill(this.node, shown);
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

  /** Tab goes from the sentence to the link and back. */
  private _keepFocus(event: KeyboardEvent): void {
    if (event.key !== 'Tab') {
      return;
    }
    event.preventDefault();
    const content = this.node.querySelector<HTMLElement>('.jp-Dialog-content')!;
    const link = this.node.querySelector<HTMLElement>('a:not([hidden])');
    (link && document.activeElement !== link ? link : content).focus();
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

  private _focused: Element | null = null;
}

function createNode(): HTMLElement {
  const node = document.createElement('div');
  node.innerHTML = `
    <div class="jp-Dialog-content" role="dialog" aria-modal="true" aria-labelledby="jp-gkews-overlay-title" tabindex="-1">
      <div class="jp-Dialog-header jp-gkews-Overlay-title" id="jp-gkews-overlay-title"></div>
      <div class="jp-Dialog-body" role="status" aria-live="polite">
        <p class="jp-gkews-Overlay-sentence"></p>
        <p class="jp-gkews-Overlay-more"></p>
        <progress class="jp-gkews-Overlay-progress" max="1"></progress>
      </div>
      <div class="jp-Dialog-footer"><a class="jp-gkews-Overlay-link"></a></div>
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
  const bar = node.querySelector<HTMLProgressElement>('progress')!;
  bar.hidden = shown.progress === undefined;
  bar.setAttribute('aria-label', shown.heading);
  if (typeof shown.progress === 'number') {
    bar.value = Math.min(1, Math.max(0, shown.progress));
  } else {
    bar.removeAttribute('value');
  }
  const link = node.querySelector<HTMLAnchorElement>('a')!;
  const address = webUrl(shown.link?.address, document.baseURI);
  link.hidden = !address;
  if (address) {
    link.href = address.href;
    link.textContent = shown.link!.label;
    link.classList.toggle('jp-mod-accept', shown.link!.main);
  }
}
