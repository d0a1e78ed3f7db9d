/** The questions and answers that Lab shows as dialogs: before a pause, a refusal, what could not be saved, the receipt. */

import { Dialog, ReactWidget, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import type { IUnsaved } from './save';
import type { IHolds, IPreflight } from './tokens';
import type { IReceiptText, Translate } from './words';
import { estimate, holds } from './words';

function List(props: { items: string[] }): JSX.Element {
  return (
    <ul>
      {props.items.map((item, index) => (
        <li key={index}>{item}</li>
      ))}
    </ul>
  );
}

function held(facts: IPreflight): IHolds {
  return facts.holds ?? facts.facts ?? {};
}

/** One line a kernel: what people call it first. */
export function kernelLines(facts: IPreflight, trans: Translate): string[] {
  return (held(facts).kernels ?? []).map(kernel => {
    const name = kernel.path || kernel.name || trans.__('a kernel');
    return kernel.state === 'busy' ? trans.__('%1 (busy: it goes on after the resume)', name) : name;
  });
}

/** What will come back, what will not, how big, how long. */
export function Facts(props: { facts: IPreflight; trans: Translate }): JSX.Element {
  const { facts, trans } = props;
  const lost = facts.will_not_return ?? [];
  const numbers = estimate(facts, trans);
  const back = holds(held(facts).kernels, held(facts).terminals, trans);
  return (
    <div className="jp-gkews-Facts">
      <p>
        {trans.__(
          'The memory of this server is saved, and its machine is given back. Resume brings the same processes back.'
        )}
      </p>
      <h3>{trans.__('Comes back')}</h3>
      <p>
        {back
          ? trans.__('%1, with all variables and running cells.', back)
          : trans.__('The server; it has no kernels and no terminals.')}
      </p>
      <List items={kernelLines(facts, trans)} />
      {lost.length > 0 && (
        <>
          <h3>{trans.__('Does not come back')}</h3>
          <List items={lost} />
        </>
      )}
      {numbers && <p>{numbers}</p>}
      <p className="jp-gkews-Facts-note">
        {trans.__(
          'Unsaved documents of this tab are saved first. Unsaved edits in other tabs are yours to save there.'
        )}
      </p>
    </div>
  );
}

/** Ask whether to pause; tells why not when it would be refused. */
export async function confirmPause(facts: IPreflight, trans: Translate): Promise<boolean> {
  const { refusal } = facts;
  if (refusal) {
    await showSentences(trans.__('This server cannot be paused now'), [refusal.sentence, refusal.advice ?? ''], trans);
    return false;
  }
  const result = await showDialog({
    title: trans.__('Pause this server?'),
    body: ReactWidget.create(<Facts facts={facts} trans={trans} />),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.okButton({ label: trans.__('Pause'), ariaLabel: trans.__('Pause server') })
    ]
  });
  return result.button.accept;
}

/** A dialog with sentences and nothing to decide. */
export async function showSentences(title: string, sentences: string[], trans: Translate): Promise<void> {
  await showDialog({
    title,
    body: ReactWidget.create(
      <div className="jp-gkews-Facts">
        {sentences.filter(Boolean).map((sentence, index) => (
          <p key={index}>{sentence}</p>
        ))}
      </div>
    ),
    buttons: [Dialog.okButton({ label: trans.__('Close') })]
  });
}

/** The pause was stopped because documents could not be saved. */
export async function showUnsaved(unsaved: IUnsaved[], trans: Translate): Promise<void> {
  await showDialog({
    title: trans.__('The server was not paused'),
    body: ReactWidget.create(
      <div className="jp-gkews-Facts">
        <p>{trans.__('These documents could not be saved. Save or close them, then pause again.')}</p>
        <List items={unsaved.map(({ path, why }) => `${path}: ${why}`)} />
      </div>
    ),
    buttons: [Dialog.okButton({ label: trans.__('Close') })]
  });
}

/** The whole receipt. */
export async function showReceipt(text: IReceiptText, trans: Translate): Promise<void> {
  await showDialog({
    title: text.good ? trans.__('Your server resumed') : trans.__('Your server was not resumed'),
    body: ReactWidget.create(
      <div className="jp-gkews-Facts">
        <p>{text.line}</p>
        {text.lost.length > 0 && (
          <>
            <h3>{text.good ? trans.__('Did not come back') : trans.__('Why')}</h3>
            <List items={text.lost} />
          </>
        )}
        {text.details.map((detail, index) => (
          <p key={index} className="jp-gkews-Facts-note">
            {detail}
          </p>
        ))}
      </div>
    ),
    buttons: [Dialog.okButton({ label: trans.__('Close') })]
  });
}
