/**
 * Completing a cell's outputs from the server's journal: what is missing is added, nothing is doubled.
 *
 * The journal has the outputs of a run from its start, as they came from the kernel; Lab has them merged (neighbouring
 * stream texts are one, `\r` and `\b` are carried out). Both are brought to the same form before they are compared.
 */

import { JSONExt } from '@lumino/coreutils';
import type { ReadonlyJSONValue } from '@lumino/coreutils';

/** An output as nbformat has it. */
export type Output = Record<string, unknown>;

/** What to do with a cell's outputs. */
export type Completion =
  { kind: 'complete' } | { kind: 'append'; outputs: Output[] } | { kind: 'replace'; outputs: Output[] };

/** nbformat allows a text as a list of lines. */
function joined(text: unknown): unknown {
  return Array.isArray(text) && text.every(line => typeof line === 'string') ? text.join('') : text;
}

/** Carry out `\r` and `\b` as Lab's output model does, so that a progress bar is its last state. */
export function carriedOut(text: string): string {
  if (!/[\r\b]/.test(text)) {
    return text;
  }
  const lines = text.split('\n').map(line => {
    let done: string[] = [];
    let at = 0;
    for (const char of line) {
      if (char === '\r') {
        at = 0;
      } else if (char === '\b') {
        if (at > 0) {
          at--;
          done = [...done.slice(0, at), ...done.slice(at + 2)]; // as Lab does it: what was under the cursor goes too
        }
      } else {
        done[at++] = char;
      }
    }
    return done.join('');
  });
  return lines.join('\n');
}

/** Outputs in the form in which they are compared and given to Lab: one text a stream, no `transient`. */
export function merged(outputs: readonly Output[]): Output[] {
  const result: Output[] = [];
  for (const output of outputs) {
    const copy: Output = { ...output };
    delete copy['transient'];
    if (copy['output_type'] === 'stream') {
      copy['text'] = joined(copy['text']);
      const last = result[result.length - 1];
      if (last && last['output_type'] === 'stream' && last['name'] === copy['name']) {
        last['text'] = String(last['text']) + String(copy['text']);
        continue;
      }
    } else if (copy['data'] && typeof copy['data'] === 'object') {
      copy['data'] = Object.fromEntries(
        Object.entries(copy['data']).map(([mime, data]) => [mime, /[/+]json$/.test(mime) ? data : joined(data)])
      );
    }
    result.push(copy);
  }
  for (const output of result) {
    if (output['output_type'] === 'stream') {
      output['text'] = carriedOut(String(output['text']));
    }
  }
  return result;
}

function same(a: Output, b: Output): boolean {
  return JSONExt.deepEqual(a as ReadonlyJSONValue, b as ReadonlyJSONValue);
}

/** The part of `whole` beyond `start`, or null when `start` is not how `whole` begins. */
function beyond(start: Output[], whole: Output[]): Output[] | null {
  if (start.length > whole.length) {
    return null;
  }
  const last = start.length - 1;
  for (let i = 0; i < last; i++) {
    if (!same(start[i]!, whole[i]!)) {
      return null;
    }
  }
  if (last < 0) {
    return whole;
  }
  const mine = start[last]!;
  const theirs = whole[last]!;
  if (same(mine, theirs)) {
    return whole.slice(start.length);
  }
  const streams =
    mine['output_type'] === 'stream' && theirs['output_type'] === 'stream' && mine['name'] === theirs['name'];
  const text = String(theirs['text']);
  const had = String(mine['text']);
  if (!streams || !text.startsWith(had)) {
    return null;
  }
  return [{ ...theirs, text: text.slice(had.length) }, ...whole.slice(start.length)];
}

/** Whether what a cell shows begins with `earlier`. */
export function startsWith(shown: readonly Output[], earlier: readonly Output[]): boolean {
  return beyond(merged(earlier), merged(shown)) !== null;
}

/** What is known of a run when its outputs are compared. */
export interface IRun {
  /** It has ended. */
  done: boolean;
  /** The journal's bound cut its end off. */
  truncated: boolean;
}

/**
 * How to bring the outputs that a cell shows (`shown`) to those of the journal (`kept`), which is the whole truth: a cell that
 * lacks its end gets that, one that differs gets all of it. While the run goes on (`done` false) a cell may be ahead of the
 * journal's answer; where the journal was cut off (`truncated`), a cell that shows more keeps it.
 */
export function completion(shown: readonly Output[], kept: readonly Output[], run: IRun): Completion {
  const mine = merged(shown);
  const theirs = merged(kept);
  const missing = beyond(mine, theirs);
  if (missing) {
    return missing.length ? { kind: 'append', outputs: missing } : { kind: 'complete' };
  }
  const ahead = !run.done && beyond(theirs, mine);
  if (ahead || (run.truncated && weight(mine) >= weight(theirs))) {
    return { kind: 'complete' };
  }
  return { kind: 'replace', outputs: theirs };
}

function weight(outputs: Output[]): number {
  return JSON.stringify(outputs).length;
}
