/** What people read: phases, sizes, times, the receipt. Pure functions; the sentences that the Hub sends go first. */

import type { TranslationBundle } from '@jupyterlab/translation';

import type { IFollow, IPreflight, IReceipt, Phase } from './tokens';

/** The part of a translation bundle that is used here. */
export type Translate = Pick<TranslationBundle, '__' | '_n'>;

/** Bytes for people, in decimal units as disks are sold; the Hub's pages write them the same way. */
export function size(bytes: number): string {
  let value = Math.max(0, bytes);
  let unit = 0;
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${value.toFixed(unit > 0 && value < 9.95 ? 1 : 0)} ${units[unit]}`;
}

/** Seconds as people read them. */
export function duration(seconds: number, trans: Translate): string {
  if (seconds < 9.95) {
    return trans.__('%1 s', Math.max(0.1, seconds).toFixed(1));
  }
  if (seconds < 90) {
    return trans.__('%1 s', Math.round(seconds));
  }
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? trans.__('%1 min', minutes) : trans.__('%1 h', Math.round(minutes / 60));
}

/** The phase in a few words. */
export function heading(phase: Phase, trans: Translate): string {
  switch (phase) {
    case 'running':
      return trans.__('Your server is running');
    case 'preparing':
    case 'checkpointing':
    case 'saved':
    case 'stopping':
      return trans.__('Pausing your server');
    case 'paused':
      return trans.__('This server is paused');
    case 'waiting':
    case 'restoring':
      return trans.__('Resuming your server');
    case 'unproven':
      return trans.__('Your server needs a decision');
    case 'deleting':
      return trans.__('The paused server is being discarded');
  }
}

/** The Hub's sentence for the phase, else ours. */
export function sentence(follow: IFollow, trans: Translate): string {
  if (follow.sentence) {
    return follow.sentence;
  }
  switch (follow.phase) {
    case 'running':
      return trans.__('Your server is running.');
    case 'preparing':
      return trans.__('Getting ready: connections are closed and files are written out.');
    case 'checkpointing':
      return trans.__('Saving the memory of your kernels and terminals.');
    case 'saved':
      return trans.__('Everything is saved.');
    case 'stopping':
      return trans.__('Everything is saved; the machine is being given back.');
    case 'paused':
      return trans.__('Its memory is saved. Resume it to go on where you left off.');
    case 'waiting':
      return trans.__('Waiting for a free machine.');
    case 'restoring':
      return trans.__('Bringing your kernels and terminals back.');
    case 'unproven':
      return trans.__('A server is up, but it is not the one that was paused. The snapshot is kept.');
    case 'deleting':
      return trans.__('Its snapshot is being deleted.');
  }
}

/** "42 %, about 3 s left", as far as it is known. */
export function part(follow: IFollow, trans: Translate): string {
  if (typeof follow.progress !== 'number') {
    return '';
  }
  const percent = trans.__('%1 %', Math.round(100 * Math.min(0.99, Math.max(0, follow.progress))));
  return typeof follow.remaining === 'number' && follow.remaining > 0
    ? trans.__('%1, about %2 left', percent, duration(Math.max(1, Math.round(follow.remaining)), trans))
    : percent;
}

/** How many; lists and numbers both occur on the wire. */
function count(value: number | unknown[] | null | undefined): number {
  return Array.isArray(value) ? value.length : (value ?? 0);
}

/** "2 kernels and 1 terminal", or "" when there is neither. */
export function holds(
  kernels: number | unknown[] | null | undefined,
  terminals: number | unknown[] | null | undefined,
  trans: Translate
): string {
  const parts: string[] = [];
  if (count(kernels) > 0) {
    parts.push(trans._n('%1 kernel', '%1 kernels', count(kernels)));
  }
  if (count(terminals) > 0) {
    parts.push(trans._n('%1 terminal', '%1 terminals', count(terminals)));
  }
  return parts.length === 2 ? trans.__('%1 and %2', parts[0]!, parts[1]!) : (parts[0] ?? '');
}

/** "About 212 MiB; about 2.1 s to pause and 1.0 s to resume.", as far as it is known. */
export function estimate(facts: IPreflight, trans: Translate): string {
  const known: string[] = [];
  if (typeof facts.bytes === 'number') {
    known.push(trans.__('About %1 will be saved.', size(facts.bytes)));
  }
  if (typeof facts.seconds_pause === 'number' && typeof facts.seconds_resume === 'number') {
    known.push(
      trans.__(
        'Pausing takes about %1, resuming about %2.',
        duration(facts.seconds_pause, trans),
        duration(facts.seconds_resume, trans)
      )
    );
  } else if (typeof facts.seconds_pause === 'number') {
    known.push(trans.__('Pausing takes about %1.', duration(facts.seconds_pause, trans)));
  }
  return known.join(' ');
}

/** A receipt for people. */
export interface IReceiptText {
  good: boolean;
  line: string;
  /** What did not come back and why: to be noticed. */
  lost: string[];
  /** What there is to know besides. */
  details: string[];
}

/** Words for the codes of a receipt; a code of a newer Hub that is not here is left out. */
function codeWords(code: string, trans: Translate): string {
  switch (code) {
    case 'silent_cold_start':
      return trans.__('The server was started anew instead of being restored; the snapshot is kept.');
    case 'engine_silent':
      return trans.__('What restores servers did not confirm that it did; the snapshot is kept.');
    case 'identity_differs':
      return trans.__('The processes are not the ones that were paused; the snapshot is kept.');
    case 'kernels_missing':
      return trans.__('Some kernels are missing.');
    case 'proof_by_engine_only':
      return trans.__(
        'That these are the same processes rests on the word of what restored them: the server was not asked.'
      );
    case 'checkpoint_silent':
      return trans.__('The sandbox itself did not say that it was restored.');
    default:
      return '';
  }
}

/** What to tell about a return. `fresh` says that the tab itself knows that another process answers. */
export function receiptText(receipt: IReceipt | null, fresh: boolean, trans: Translate): IReceiptText {
  const good = !fresh && receipt?.resumed !== false;
  const words = (codes: string[] | undefined) => (codes ?? []).map(code => codeWords(code, trans));
  const missing = (receipt?.kernels_missing ?? []).map(({ name }) =>
    trans.__('A kernel (%1) did not come back.', name || '?')
  );
  const notReturning = receipt?.before?.not_returning;
  const before = Array.isArray(notReturning) ? notReturning.filter(item => typeof item === 'string') : [];
  // Of a server that is another one everything is gone: only why, and whose memory that was.
  const lost = [...(good ? before : words(receipt?.reasons)), ...missing].filter(Boolean);
  const seconds = receipt?.seconds;
  const details = words(receipt?.notes).filter(Boolean);
  if (typeof seconds?.pause === 'number') {
    details.push(trans.__('Pausing took %1.', duration(seconds.pause, trans)));
  }
  if (typeof seconds?.paused === 'number') {
    details.push(trans.__('It was paused for %1.', duration(seconds.paused, trans)));
  }
  if (!good) {
    return { good, line: trans.__('This is a fresh server: nothing was resumed.'), lost, details };
  }
  details.push(trans.__('Random generators of your programs go on from where they were.'));
  const facts: string[] = [];
  if (typeof seconds?.resume === 'number') {
    facts.push(trans.__('in %1', duration(seconds.resume, trans)));
  }
  if (typeof receipt?.bytes === 'number') {
    facts.push(size(receipt.bytes));
  }
  const back = holds(receipt?.kernels, receipt?.before?.terminals, trans);
  const line =
    (facts.length ? trans.__('Your server resumed %1.', facts.join(', ')) : trans.__('Your server resumed.')) +
    (back ? ` ${trans.__('Back: %1.', back)}` : '');
  return { good, line, lost, details };
}
