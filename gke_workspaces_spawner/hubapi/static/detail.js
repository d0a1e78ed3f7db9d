// What a server's own page tells beside its state: what the snapshot holds, the receipt of the last resume, other snapshots.

import { h } from './dom.js';
import { bytes, duration, exactly, plural, when } from './words.js';

/** A time as people say it; the exact one in its tooltip. */
export function time(seconds, now) {
  return h('time', { datetime: new Date(seconds * 1000).toISOString(), title: exactly(seconds) }, when(seconds, now));
}

function fact(key, label, ...content) {
  return h('div', { key, class: 'gke-ws-fact' }, h('dt', {}, label), h('dd', {}, content));
}

function kernelList(kernels) {
  return h(
    'ul',
    { class: 'list-unstyled mb-0' },
    kernels
      .map(named)
      .map((kernel, index) =>
        h(
          'li',
          { key: index },
          h('bdi', { class: 'text-break' }, kernel.path || kernel.name || 'kernel'),
          h(
            'span',
            { class: 'text-body-secondary' },
            kernel.path && kernel.name ? ` · ${kernel.name}` : null,
            kernel.state ? ` · ${kernel.state}` : null
          )
        )
      )
  );
}

/** While these last, the clocks of the pause are not all set. */
const PAUSE_STEPS = new Set(['preparing', 'checkpointing', 'saved', 'stopping']);

/** A kernel, notebook or terminal as the extension named it: a string, or an object with a path or a name. */
function named(item) {
  return typeof item === 'string' ? { name: item } : (item ?? {});
}

function listOf(value) {
  return Array.isArray(value) ? value : [];
}

function countOf(value) {
  return Array.isArray(value) ? value.length : Number(value) || 0;
}

/** Seconds between a snapshot and the moment since which the server is paused, from which on both are told. */
const OLDER = 60;

/** Facts of a pause: since when, how big, how long kept, what it holds. */
export function facts(view, now) {
  const { snapshot, holds } = view;
  const clocks = view.pause?.clocks ?? {};
  const all = [];
  if (view.phase === 'paused' && view.since) {
    all.push(fact('since', 'Paused since', time(view.since, now)));
  }
  if (view.phase === 'paused' && view.since && snapshot?.created && view.since - snapshot.created > OLDER) {
    all.push(fact('from', 'Memory as of', time(snapshot.created, now)));
  }
  if (snapshot?.bytes) {
    all.push(fact('size', 'Size', bytes(snapshot.bytes)));
  }
  if (clocks.pause_asked && clocks.freed && !PAUSE_STEPS.has(view.phase)) {
    all.push(fact('took', 'Pausing took', duration(clocks.freed - clocks.pause_asked)));
  }
  if (snapshot) {
    all.push(
      fact(
        'kept',
        'Kept until',
        snapshot.expires
          ? [time(snapshot.expires, now), ` (${duration(Math.max(0, snapshot.expires - now / 1000))} left)`]
          : 'you discard it'
      )
    );
  }
  if (holds) {
    const kernels = listOf(holds.kernels);
    const terminals = countOf(holds.terminals);
    all.push(
      fact(
        'holds',
        view.phase === 'unproven' ? 'In the snapshot' : 'Comes back',
        kernels.length ? kernelList(kernels) : null,
        terminals ? h('div', { key: 'terminals' }, plural(terminals, 'terminal')) : null,
        !kernels.length && !terminals ? 'The server itself; no kernel and no terminal is open.' : null
      )
    );
    const lost = [
      ...listOf(holds.not_returning),
      ...(countOf(holds.connections) ? [plural(countOf(holds.connections), 'open network connection')] : [])
    ];
    if (lost.length) {
      all.push(
        fact(
          'lost',
          'Does not come back',
          h(
            'ul',
            { class: 'list-unstyled mb-0' },
            lost.map((item, index) => h('li', { key: index, class: 'text-break' }, lineOf(item)))
          )
        )
      );
    }
  }
  return all.length ? h('dl', { key: 'facts', class: 'gke-ws-facts card card-body' }, all) : null;
}

/** A line of a list from the extension: text, or an object that says what and why. */
function lineOf(item) {
  const { path, what, name, why, reason: because } = named(item);
  const cause = why ?? because;
  return [h('bdi', {}, String(path ?? what ?? name ?? '')), cause ? `: ${String(cause)}` : null];
}

function receiptList(key, title, lines) {
  if (!lines.length) {
    return null;
  }
  return h(
    'div',
    { key },
    h('h3', { class: 'h6' }, title),
    h(
      'ul',
      {},
      lines.map((content, index) => h('li', { key: index, class: 'text-break' }, content))
    )
  );
}

/** What came back with the last resume and what did not. */
export function receipt(view) {
  const paper = view.receipt;
  if (!paper || view.phase !== 'running') {
    return null;
  }
  const kernels = listOf(paper.kernels);
  const terminals = countOf(paper.before?.terminals);
  const measures = [
    typeof paper.seconds?.resume === 'number' ? duration(paper.seconds.resume) : null,
    typeof paper.bytes === 'number' && paper.bytes ? bytes(paper.bytes) : null,
    typeof paper.seconds?.paused === 'number' ? `after a pause of ${duration(paper.seconds.paused)}` : null
  ].filter(Boolean);
  return h(
    'section',
    { key: 'receipt', class: 'card', 'aria-labelledby': 'gke-ws-receipt' },
    h('h2', { class: 'card-header h6 mb-0', id: 'gke-ws-receipt' }, 'Last resume'),
    h(
      'div',
      { class: 'card-body gke-ws-receipt' },
      h(
        'p',
        { key: 'sentence' },
        paper.resumed ? 'The same processes are back' : 'Not proved to be the same processes',
        measures.length ? ` (${measures.join(', ')}).` : '.'
      ),
      receiptList('back', 'Came back', [
        ...kernels.map(kernel => ['Kernel ', h('bdi', {}, kernel.name || kernel.id)]),
        ...(terminals ? [plural(terminals, 'terminal')] : [])
      ]),
      receiptList('missing', 'Did not come back', [
        ...listOf(paper.kernels_missing).map(kernel => ['Kernel ', h('bdi', {}, kernel.name || kernel.id)]),
        ...listOf(paper.before?.not_returning).map(lineOf)
      ]),
      receiptList('notes', 'To know', listOf(paper.sentences))
    )
  );
}

/** What a snapshot is good for; `own`: no pause is open, so this server itself is none of them. */
function purpose(snapshot, own, view) {
  switch (snapshot.state) {
    case 'current':
      if (!own) {
        return 'of the pause before';
      }
      if (!view.hub?.ready) {
        return 'of an earlier pause: no Resume leads to it any more';
      }
      return view.pause?.id === snapshot.pause_id
        ? 'of the last pause; if this server ends by itself, Resume goes back to it'
        : 'of an earlier pause';
    case 'superseded':
      return 'superseded: no Resume leads to it any more';
    case 'unproven':
      return 'not proven: no Resume leads to it any more';
    case 'pinned':
      return 'held';
  }
  return snapshot.state;
}

/** Snapshots beside the one that Resume brings back; while no pause is open each can be discarded by itself. */
export function shelf(view, ui, act, now) {
  const own = view.phase === 'running';
  const others = listOf(view.snapshots).filter(snapshot => own || snapshot.id !== view.snapshot?.id);
  if (!others.length) {
    return null;
  }
  return h(
    'section',
    { key: 'shelf', 'aria-labelledby': 'gke-ws-shelf' },
    h('h2', { class: 'h6', id: 'gke-ws-shelf' }, own ? 'Kept snapshots' : 'Other snapshots'),
    h(
      'ul',
      { class: 'list-group' },
      others.map(snapshot =>
        h(
          'li',
          { key: snapshot.id, class: 'list-group-item gke-ws-row' },
          h(
            'div',
            { key: 'what' },
            time(snapshot.created, now),
            ` · ${bytes(snapshot.bytes)}`,
            h(
              'div',
              { class: 'text-body-secondary small' },
              purpose(snapshot, own, view),
              snapshot.expires ? [' · kept until ', time(snapshot.expires, now)] : null
            )
          ),
          own && snapshot.pause_id && keptButtons(snapshot, ui, act)
        )
      )
    )
  );
}

function keptButtons(snapshot, ui, act) {
  const press = (label, look, action, confirmed) =>
    h(
      'button',
      {
        key: label,
        type: 'button',
        class: `btn btn-sm btn-${look}${ui.busy ? ' gke-ws-off' : ''}`,
        'data-action': action,
        onclick: () => ui.busy || act(action, confirmed, snapshot.pause_id)
      },
      label
    );
  const asked = ui.confirmKept === snapshot.pause_id;
  return h(
    'div',
    { key: 'buttons', class: 'gke-ws-buttons' },
    asked
      ? [
          h('span', { key: 'question', tabindex: '-1', 'data-gke-focus': 'confirm' }, 'Discard for good?'),
          press('Discard', 'danger', 'kept', true),
          press('Keep it', 'outline-secondary', null, false)
        ]
      : press('Discard', 'outline-danger', 'kept', false)
  );
}
