// Entry: finds the places that a page left for us, and fills each the way its page needs it.

import { safeUrl } from './api.js';
import { buttons, badgeOf, line, partLine, troubles, whole } from './card.js';
import { h, patch } from './dom.js';
import { Screen, keyOf, me } from './screen.js';
import { bytes, exactly, open, steps, when } from './words.js';

class OneScreen extends Screen {
  draw() {
    const [view] = this.views;
    const gone = this.common.gone && h('p', { key: 'gone', class: 'alert alert-warning' }, this.common.gone);
    const files = view?.phase === 'paused' ? safeUrl(view.urls?.files) : null;
    patch(
      this.root,
      view ? whole(view, this.ui(view), (...press) => this.act(view, ...press), { ...this.options(), files }) : [gone]
    );
    if (view) {
      this.mount.dataset.phase = view.phase;
      this.leadTo(view);
    }
  }

  /** JupyterLab's link to the button that cancels (`#cancel`): the focus goes there, once. */
  leadTo(view) {
    if (location.hash === '#cancel' && !this.led) {
      this.led = true;
      this.focus(view, '[data-action="cancel"]');
    }
  }
}

/** On JupyterHub's page that starts a server: in place of its form, which stays for "Start fresh". */
class FormScreen extends OneScreen {
  start() {
    this.fresh = this.mount.querySelector('[data-gke-workspaces-fresh]');
    this.mount.classList.add('gke-ws-live');
    super.start();
  }

  act(view, action, confirmed) {
    if (action === 'fresh' && this.fresh) {
      this.fresh.open = true;
      this.fresh.querySelector('input, select, textarea, button')?.focus();
      return undefined;
    }
    return super.act(view, action, confirmed);
  }

  draw() {
    super.draw();
    if (this.fresh) {
      this.fresh.hidden = !this.views[0]?.actions.includes('fresh');
    }
  }
}

/** In place of what JupyterHub says of a server that does not run, as long as a record is open. */
class InsteadScreen extends OneScreen {
  draw() {
    const [view] = this.views;
    const ours = Boolean(view) && (open(view) || this.came);
    if (ours) {
      this.came = true;
      super.draw();
    } else {
      patch(this.root, []);
    }
    document.body.classList.toggle('gke-ws-instead-on', ours);
  }
}

/** On JupyterHub's page that waits for a start: one that waits for room has ended, and the server's own page goes on from there. */
class StartingScreen extends Screen {
  draw() {
    const [view] = this.views;
    const page = view?.phase === 'waiting' && !view.hub?.pending ? safeUrl(view.urls?.page) : null;
    if (page) {
      this.goOnLater(view);
      location.replace(page);
    }
  }
}

class ListScreen extends Screen {
  draw() {
    const others = this.views.filter(view => view.user !== me());
    const own = this.views.filter(view => view.user === me());
    const list = (key, label, views) =>
      h(
        'ul',
        { key, class: 'list-group', 'aria-label': label },
        views.map(view => this.line(view))
      );
    patch(this.root, [
      h('div', { key: 'trouble' }, troubles(null, this.common)),
      this.common.gone && h('p', { key: 'gone', class: 'alert alert-warning' }, this.common.gone),
      own.length
        ? list('own', 'Your servers', own)
        : !this.common.gone &&
          h(
            'p',
            { key: 'none', class: 'alert alert-light border' },
            'You have no server yet. ',
            h('a', { href: `${window.jhdata?.base_url ?? '/hub/'}home` }, 'Start one from Home'),
            '.'
          ),
      others.length
        ? [
            h('h2', { key: 'others-title', class: 'h4 mt-4' }, 'Servers of others'),
            list('others', 'Servers of others', others)
          ]
        : null
    ]);
  }

  line(view) {
    const ui = { ...this.uis.get(keyOf(view)) };
    return line(view, ui, (...press) => this.act(view, ...press), {
      ...this.options(),
      page: safeUrl(view.urls?.page)
    });
  }
}

/** On JupyterHub's home page: the default server as a card in place of its two buttons, named ones inside their table's rows. */
class HomeScreen extends Screen {
  rowOf(view) {
    return [...document.querySelectorAll('tr.home-server-row[data-server-name]')].find(
      row => row.getAttribute('data-server-name') === view.server
    );
  }

  place(view) {
    return (view.server && this.rowOf(view)) || this.mount;
  }

  draw() {
    const own = this.views.filter(view => view.user === me());
    const lines = [];
    for (const view of own) {
      const row = view.server ? this.rowOf(view) : null;
      if (row) {
        this.drawRow(row, view);
      } else {
        lines.push(
          line(view, { ...this.uis.get(keyOf(view)) }, (...press) => this.act(view, ...press), {
            ...this.options(),
            page: safeUrl(view.urls?.page)
          })
        );
      }
    }
    patch(this.root, [
      h('div', { key: 'trouble' }, troubles(null, this.common)),
      lines.length ? h('ul', { key: 'list', class: 'list-group' }, lines) : null
    ]);
    const stock = document.getElementById('start')?.closest('.row');
    stock?.classList.toggle(
      'gke-ws-replaced',
      own.some(view => !view.server)
    );
  }

  drawRow(row, view) {
    const table = row.closest('table');
    if (!table.querySelector('[data-gke-state]')) {
      const head = document.createElement('th');
      head.textContent = 'State';
      head.dataset.gkeState = '';
      table.querySelector('thead tr')?.children[0]?.after(head);
      for (const cell of table.querySelectorAll('td[colspan]')) {
        cell.colSpan += 1;
      }
    }
    let state = row.querySelector('td.gke-ws-state');
    let ours = row.querySelector('span.gke-ws-actions');
    if (!state) {
      state = document.createElement('td');
      state.className = 'gke-ws-state';
      row.children[0].after(state);
      ours = document.createElement('span');
      ours.className = 'gke-ws-actions';
      row.lastElementChild.prepend(ours);
    }
    const ui = { ...this.uis.get(keyOf(view)) };
    const page = safeUrl(view.urls?.page);
    patch(state, [
      h('a', { key: 'page', class: 'gke-ws-plainlink', href: page, 'data-gke-focus': 'title' }, badgeOf(view)),
      view.phase === 'paused' && view.since
        ? h('div', { key: 'since', class: 'small text-body-secondary' }, `since ${when(view.since)}`)
        : null,
      steps(view).length && partLine(view)
        ? h('div', { key: 'part', class: 'small text-body-secondary' }, partLine(view))
        : null,
      troubles(view.reason ? { ...view, detail: null } : null, ui)
    ]);
    // a server that runs or stands still keeps JupyterHub's own buttons; Pause is added to them
    const without = open(view) ? [] : ['open', 'start', 'stop'];
    patch(ours, [buttons(view, ui, (...press) => this.act(view, ...press), { small: true, without })]);
    row.classList.toggle('gke-ws-led', open(view) || Boolean(ui.confirm));
    if (!open(view)) {
      this.stockButtons(row, view);
    }
  }

  /** JupyterHub sets these when it renders the page; a state that changed since then sets them again. */
  stockButtons(row, view) {
    const active = Boolean(view.hub?.ready || view.hub?.pending);
    row.querySelector('.stop-server')?.classList.toggle('hidden', !active);
    row.querySelector('.start-server')?.classList.toggle('hidden', active);
    row.querySelector('.delete-server')?.classList.toggle('hidden', active);
    row.querySelector('.server-link')?.classList.toggle('hidden', !view.hub?.ready);
  }
}

const SCREENS = {
  one: OneScreen,
  form: FormScreen,
  instead: InsteadScreen,
  starting: StartingScreen,
  list: ListScreen,
  home: HomeScreen
};

for (const mount of document.querySelectorAll('[data-gke-workspaces]')) {
  new SCREENS[mount.dataset.gkeWorkspaces](mount).start();
}
for (const item of document.querySelectorAll('[data-gke-bytes]')) {
  item.textContent = bytes(item.dataset.gkeBytes);
}
for (const item of document.querySelectorAll('time[data-gke-time]')) {
  const seconds = Number(item.dataset.gkeTime);
  item.dateTime = new Date(seconds * 1000).toISOString();
  item.textContent = when(seconds);
  item.title = exactly(seconds);
}
