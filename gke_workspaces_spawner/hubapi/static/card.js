// What one server looks like, whole (its own page) or short (a line of a list). Pure: a view and the state of the screen in, nodes out.

import { h } from './dom.js';
import { facts, receipt, shelf, time } from './detail.js';
import { badge, button, bytes, confirmation, duration, offered, open, steps, underWay } from './words.js';

/** How the server is called on a page of `me`. */
export function nameOf(view, me) {
  const own = view.user === me;
  if (view.server) {
    return own ? view.server : `${view.server} of ${view.user}`;
  }
  return own ? 'My server' : `Default server of ${view.user}`;
}

export function badgeOf(view) {
  const { label, look, icon, busy } = badge(view);
  return h(
    'span',
    { key: 'badge', class: `badge text-bg-${look} gke-ws-badge`, 'data-phase': view.phase },
    busy
      ? h('span', { class: 'spinner-border gke-ws-spin', 'aria-hidden': 'true' })
      : h('i', { class: `fa fa-fw ${icon}`, 'aria-hidden': 'true' }),
    ' ',
    label
  );
}

function sinceLine(view, now) {
  if (!view.since) {
    return null;
  }
  if (view.phase === 'paused') {
    return ['Paused since ', time(view.since, now)];
  }
  if (view.phase === 'unproven') {
    return ['Since ', time(view.since, now)];
  }
  if (underWay(view) && open(view)) {
    return [`For ${duration(Math.max(0, now / 1000 - view.since))}`];
  }
  return null;
}

/** Whole percents of the phase that are over, never 100; null where it is not known. */
function percentOf(view) {
  return typeof view.progress === 'number' ? Math.round(Math.min(0.99, Math.max(0, view.progress)) * 100) : null;
}

/** "42 %, about 3 s left", "42 %" or nothing, as far as it is known. */
export function partLine(view) {
  const percent = percentOf(view);
  if (percent === null) {
    return null;
  }
  return view.remaining > 0
    ? `${percent} %, about ${duration(Math.max(1, Math.round(view.remaining)))} left`
    : `${percent} %`;
}

function progressBar(view, label) {
  const percent = percentOf(view);
  const known = percent !== null;
  return h(
    'div',
    {
      key: 'progress',
      class: 'progress gke-ws-progress',
      role: 'progressbar',
      'aria-label': label,
      'aria-valuemin': '0',
      'aria-valuemax': '100',
      'aria-valuenow': percent
    },
    h('div', {
      class: `progress-bar${known ? '' : ' gke-ws-unknown'}`,
      style: known ? { width: `${percent}%` } : {}
    })
  );
}

function stepper(view) {
  const all = steps(view);
  const at = all.findIndex(step => step.phase === view.phase);
  return h(
    'ol',
    { key: 'steps', class: 'gke-ws-steps', 'aria-label': 'Steps' },
    all.map((step, index) =>
      h(
        'li',
        {
          key: step.phase,
          class: index < at ? 'gke-ws-done' : index === at ? 'gke-ws-now' : null,
          'aria-current': index === at ? 'step' : null
        },
        index < at && h('i', { class: 'fa fa-check', 'aria-hidden': 'true' }),
        index < at && h('span', { class: 'visually-hidden' }, 'Done: '),
        step.label
      )
    )
  );
}

/** The buttons, or while one asks to be confirmed, its question. */
export function buttons(view, ui, act, { small = false, without = [] } = {}) {
  const asked = ui.confirm && view.actions.includes(ui.confirm) ? confirmation(ui.confirm, view) : null;
  const size = small ? 'btn-sm' : '';
  if (asked) {
    return h(
      'div',
      {
        key: 'confirm',
        class: 'gke-ws-confirm alert alert-light border mb-0',
        role: 'group',
        'aria-label': 'Please confirm'
      },
      h('p', { class: 'mb-2', tabindex: '-1', 'data-gke-focus': 'confirm' }, asked.question),
      h(
        'div',
        { class: 'gke-ws-buttons' },
        h(
          'button',
          {
            key: 'yes',
            type: 'button',
            class: `btn btn-${asked.look} ${size}`,
            'data-action': ui.confirm,
            onclick: () => act(ui.confirm, true)
          },
          asked.yes
        ),
        h(
          'button',
          {
            key: 'no',
            type: 'button',
            class: `btn btn-outline-secondary ${size}`,
            'data-action': 'no',
            onclick: () => act(null)
          },
          asked.no
        )
      )
    );
  }
  const shown = offered(view).filter(action => !without.includes(action));
  return h(
    'div',
    { key: 'buttons', class: 'gke-ws-buttons' },
    shown.map(action => {
      const { label, look } = button(action, view);
      const busy = ui.busy === action;
      return h(
        'button',
        {
          key: action,
          type: 'button',
          class: `btn btn-${look} ${size}${ui.busy ? ' gke-ws-off' : ''}`,
          'data-action': action,
          // not "disabled": that would throw away the focus of the one who pressed it
          'aria-disabled': ui.busy ? 'true' : null,
          onclick: () => ui.busy || act(action)
        },
        busy && h('span', { class: 'spinner-border gke-ws-spin me-1', 'aria-hidden': 'true' }),
        label
      );
    })
  );
}

/** What went wrong: with a press of a button, with following, or with the last pause or resume. */
export function troubles(view, ui) {
  const reason = view?.reason;
  return h(
    'div',
    { key: 'troubles', 'aria-live': 'polite', class: 'gke-ws-troubles' },
    reason?.sentence &&
      h(
        'div',
        { key: 'reason', class: `alert alert-${view.phase === 'unproven' ? 'danger' : 'warning'}` },
        h('strong', {}, reason.sentence),
        reason.advice && [' ', reason.advice],
        view.detail &&
          h('details', { key: 'detail' }, h('summary', {}, 'Details'), h('pre', { class: 'mb-0' }, view.detail))
      ),
    reason &&
      !reason.sentence &&
      h('div', { key: 'code', class: 'alert alert-warning' }, 'Last outcome: ', h('code', {}, reason.code)),
    ui.error &&
      h(
        'div',
        { key: 'error', class: 'alert alert-danger' },
        ui.error.message,
        ui.error.advice && [' ', ui.error.advice]
      ),
    ui.login &&
      h(
        'div',
        { key: 'login', class: 'alert alert-warning' },
        'You are logged out. ',
        h('a', { href: ui.login, class: 'alert-link' }, 'Log in again')
      ),
    ui.unreachable &&
      h(
        'div',
        { key: 'unreachable', class: 'alert alert-secondary' },
        'The Hub cannot be reached at the moment; what you see may be old. This page tries again by itself.'
      )
  );
}

/** The whole of one server. `heading` is the level of its title. */
export function whole(view, ui, act, { me, now, heading = 'h1', files = null, without = [] }) {
  const since = sinceLine(view, now);
  const walking = steps(view).length > 0;
  const title = nameOf(view, me);
  // the reason stands below with its advice: not twice
  const sentence = (view.sentence ?? '').replace(view.reason?.sentence ?? '\0', '').trim();
  return [
    h(
      'div',
      { key: 'head', class: 'gke-ws-head' },
      h(
        heading,
        { key: 'title', tabindex: '-1', 'data-gke-focus': 'title', class: 'mb-0 text-break' },
        h('bdi', {}, title)
      ),
      badgeOf(view)
    ),
    h(
      'div',
      { key: 'said' },
      // what is read aloud: the state when it changes, not every percent of it
      h('span', { key: 'state', role: 'status', class: 'visually-hidden' }, `${title}: ${badge(view).label}`),
      sentence ? h('p', { key: 'sentence', class: 'fs-5 mb-0' }, sentence) : null,
      view.phase === 'waiting' && view.detail
        ? h('p', { key: 'detail', class: 'text-body-secondary text-break mb-0 mt-1' }, view.detail)
        : null
    ),
    walking
      ? h(
          'div',
          { key: 'way' },
          stepper(view),
          progressBar(view, badge(view).label),
          h(
            'p',
            { class: 'text-body-secondary small mt-2' },
            [since, partLine(view)].flat().filter(Boolean).join(' · ')
          )
        )
      : null,
    troubles(view, ui),
    h(
      'div',
      { key: 'actions', class: 'gke-ws-actions' },
      buttons(view, ui, act, { without }),
      files && !ui.confirm
        ? h(
            'a',
            { key: 'files', class: 'btn btn-link', href: files },
            h('i', { class: 'fa fa-folder-open me-1', 'aria-hidden': 'true' }),
            'Files'
          )
        : null
    ),
    view.phase === 'running' ? null : facts(view, now),
    receipt(view),
    shelf(view, ui, act, now)
  ];
}

/** One server in a list. */
export function line(view, ui, act, { me, now, page }) {
  const meta = [];
  const since = sinceLine(view, now);
  if (since) {
    meta.push(since);
  }
  if (view.snapshot?.bytes && open(view)) {
    meta.push([bytes(view.snapshot.bytes)]);
  }
  if (view.snapshot?.expires && view.phase === 'paused') {
    meta.push(['kept until ', time(view.snapshot.expires, now)]);
  }
  if (steps(view).length && partLine(view)) {
    meta.push([partLine(view)]);
  }
  return h(
    'li',
    {
      key: `${view.user}/${view.server}`,
      class: 'list-group-item gke-ws-line',
      'data-server': view.server,
      'data-user': view.user
    },
    h(
      'div',
      { key: 'row', class: 'gke-ws-row' },
      h(
        'div',
        { key: 'what', class: 'gke-ws-what' },
        h(
          'div',
          { class: 'gke-ws-head' },
          h(
            'a',
            { key: 'name', class: 'gke-ws-name text-break', href: page, 'data-gke-focus': 'title' },
            h('bdi', {}, nameOf(view, me))
          ),
          badgeOf(view)
        ),
        meta.length
          ? h(
              'div',
              { key: 'meta', class: 'text-body-secondary small' },
              meta.flatMap((part, index) => (index ? [' · ', ...part] : part))
            )
          : null
      ),
      ui.confirm ? null : buttons(view, ui, act, { small: true })
    ),
    ui.confirm ? buttons(view, ui, act, { small: true }) : null,
    steps(view).length ? progressBar(view, badge(view).label) : null,
    troubles(view, ui)
  );
}
